"""How deep and how entangled the rules of a grammar are: the constraint engine goes down them by
recursion, and reads a text in all the ways there are at once. Neither has a bound of its own there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

Uses = Mapping[str, Sequence[str]]
"""By rule those it names, each as often as it does."""


def levels(root: str, uses: Uses, weights: Mapping[str, int]) -> int:
    """At most so many lie within each other, `weights` being those of a rule alone. Rules that
    lead back to each other may all do."""
    below: dict[str, int] = {}
    for knot in knots(root, uses):
        deepest = max((below.get(name, 0) for rule in knot for name in uses[rule]), default=0)
        total = deepest + sum(weights[rule] for rule in knot)
        below.update(dict.fromkeys(knot, total))
    return below[root]


def entangled(root: str, uses: Uses) -> tuple[str, int]:
    """The rule that is named most often on ways that lead back to it, and how often that is."""
    most = ("", 0)
    for knot in knots(root, uses):
        named = Counter(name for rule in knot for name in uses[rule] if name in knot)
        most = max([most, *named.items()], key=lambda entry: entry[1])
    return most


def knots(root: str, uses: Uses) -> Iterator[frozenset[str]]:
    """Sets of rules that lead back to each other, most of them of one rule; those that are named
    come before those that name them. (Tarjan's, without recursion.)"""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_rules: list[str] = []
    closed: set[str] = set()
    way = [(root, iter(dict.fromkeys(uses[root])))]
    while way:
        rule, ahead = way[-1]
        if rule not in order:
            order[rule] = lowest[rule] = len(order)
            open_rules.append(rule)
        following = next((name for name in ahead if name not in closed), None)
        if following is not None:
            if following in order:
                lowest[rule] = min(lowest[rule], order[following])
            else:
                way.append((following, iter(dict.fromkeys(uses[following]))))
            continue
        way.pop()
        if way:
            above = way[-1][0]
            lowest[above] = min(lowest[above], lowest[rule])
        if lowest[rule] == order[rule]:
            knot = {rule}
            while (last := open_rules.pop()) != rule:
                knot.add(last)
            closed |= knot
            yield frozenset(knot)
