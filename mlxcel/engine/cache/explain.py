"""Where a prompt parts from the nearest thing that was kept, and by what their keys differ.

Looks into one session only: nothing of another may be seen through an answer.
"""

from collections.abc import Iterable
from itertools import islice

from mlxcel.core.cache import Divergence
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.node import Match, Node, Root, Session, walk

EXCERPT = 12
"""Tokens of each side that are shown."""
BEFORE = 4
"""Of these, at most so many that still agree."""
ROOTS = 64
"""Keys of a session that are looked at, the newest first."""


def diverged(
    session: Session | None, key: CacheKey, tokens: tuple[int, ...], least: int
) -> Divergence | None:
    """Against what was kept under the same key; against another key of the session where there
    is nothing under this one, or less than `least` tokens agree and more do there. None: the
    session has nothing."""
    if session is None:
        return None
    own = session.roots.get(key)
    match = Match((), 0) if own is None else walk(own, tokens)
    if own is not None and match.length >= least:
        return parted(own, match, tokens)
    others = (root for root in reversed(session.roots.values()) if root is not own)
    near, other = _nearest(islice(others, ROOTS), key, tokens)
    if near is not None and (own is None or other.length > match.length):
        return parted(near, other, tokens, key.differs(near.key))
    return None if own is None else parted(own, match, tokens)


def parted(
    root: Root, match: Match, tokens: tuple[int, ...], differs: tuple[str, ...] = ()
) -> Divergence | None:
    """Where a match ends, against the entry used last of those that agree so far."""
    nearest = match.nodes[-1] if match.nodes else root.top
    entry = _latest(nearest)
    if entry is None:
        return None
    start = max(0, match.length - BEFORE)
    return Divergence(
        at=match.length,
        start=start,
        prompt_ids=tokens[start : start + EXCERPT],
        entry_ids=entry.between(start, start + EXCERPT),
        differs=differs,
    )


def _nearest(
    roots: Iterable[Root], key: CacheKey, tokens: tuple[int, ...]
) -> tuple[Root | None, Match]:
    """The longest match; at equal length the key that differs in fewer dimensions."""
    near: Root | None = None
    best, fewest = Match((), 0), 0
    for root in roots:
        match, differing = walk(root, tokens), len(key.differs(root.key))
        if near is None or (match.length, -differing) > (best.length, -fewest):
            near, best, fewest = root, match, differing
    return near, best


def _latest(node: Node) -> Node | None:
    """Where the entry used last below a node ends; the top is not ranked."""
    if node.parent is not None:
        return None if node.latest is None else node.latest.node
    ends = [child.latest for child in node.children.values() if child.latest is not None]
    return max(ends, key=lambda entry: entry.rank).node if ends else None
