"""A tree to a plan: pure, so the same tree gives the same plan. Knows no kind of node.

Every problem is collected before the plan is refused.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlxcel.config.keys import read, write
from mlxcel.config.problems import ConfigErrors
from mlxcel.core.card import Card
from mlxcel.core.factory import PREFIX
from mlxcel.core.problem import Problem
from mlxcel.graph.rules import RULES, SUPPLIERS, Rule, Settled
from mlxcel.graph.spec import AMBIENT, FRONT, Clamp, Edge, NodeSpec, Plan

RUNTIME = "the runtime"

Tree = dict[str, Any]
Nodes = Mapping[str, NodeSpec]


class PlanRefused(ConfigErrors):
    """The tree is well formed, but what it describes cannot run. Exit code 2."""


def compile_plan(
    tree: Mapping[str, Any],
    card: Card | None,
    choices: Mapping[str, str],
    sources: Callable[[], Mapping[str, str]],
    rules: Sequence[Rule] = RULES,
) -> Plan:
    """`choices`: group to option, for display. `sources` is called only for problems.

    Raises PlanRefused with every problem there is.
    """
    final: Tree = copy.deepcopy(dict(tree))
    clamps, warnings, problems = _apply(rules, final, card)
    nodes = _nodes(final, choices, problems)
    edges = _edges(nodes, problems)
    problems += [*_bad_workers(nodes), *_crossed_borders(nodes, edges)]
    order = _ordered(nodes, edges, problems)
    if problems:
        raise PlanRefused(_sourced(problems, sources()))
    return Plan(
        nodes=nodes,
        edges=edges,
        order=order,
        tree=final,
        card=card,
        clamps=tuple(clamps),
        warnings=tuple(warnings),
    )


def _apply(
    rules: Sequence[Rule], tree: Tree, card: Card | None
) -> tuple[list[Clamp], list[str], list[Problem]]:
    """Run the rules in order, rewriting the tree as they say."""
    clamps: list[Clamp] = []
    warnings: list[str] = []
    problems: list[Problem] = []
    for rule in rules:
        for finding in rule(tree, card):
            match finding:
                case Clamp(key=key, used=used):
                    write(tree, key, used)
                    clamps.append(finding)
                case Settled(key=key, used=used):
                    write(tree, key, used)
                case Problem():
                    problems.append(finding)
                case warning:
                    warnings.append(warning)
    return clamps, warnings, problems


def _nodes(tree: Tree, choices: Mapping[str, str], problems: list[Problem]) -> dict[str, NodeSpec]:
    """One node per section with a `node` block, in the order of the tree."""
    nodes: dict[str, NodeSpec] = {}
    for section, content in tree.items():
        if not isinstance(content, Mapping) or content.get("node") is None:
            continue
        block = content["node"]
        factory, name = block["factory"], block["name"]
        if not factory.startswith(PREFIX):
            rule = f"is not a factory of ours; it has to start with {PREFIX}"
            problems.append(Problem(key=f"{section}.node.factory", value=factory, rule=rule))
        if name in nodes:
            rule = "is the name of another node as well"
            problems.append(Problem(key=f"{section}.node.name", value=name, rule=rule))
        nodes[name] = NodeSpec(
            name=name,
            section=section,
            choice=choices.get(section, ""),
            factory=factory,
            worker=block["worker"],
            needs=tuple(block.get("needs", ())),
            wants=tuple(block.get("wants", ())),
            provides=tuple(block.get("provides", ())),
            options=_options(section, tree, choices, problems),
        )
    return nodes


def _options(
    section: str, tree: Tree, choices: Mapping[str, str], problems: list[Problem]
) -> dict[str, Any]:
    """The section's own keys, and those it takes from others under a name of its own."""
    options: dict[str, Any] = _without_node(tree[section])
    for name, key in tree[section]["node"].get("takes", {}).items():
        try:
            options[name] = _without_node(read(tree, key))
        except KeyError:
            where = f"{section}.node.takes.{name}"
            group = key.partition(".")[0]
            chosen = f" with {group}={choices[group]}" if group in choices else ""
            problems.append(Problem(key=where, value=key, rule=f"is no key of the tree{chosen}"))
    return options


def _without_node(value: Any) -> Any:
    """A section without its block; any other value as it is."""
    if not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if key != "node"}


def _edges(nodes: Nodes, problems: list[Problem]) -> tuple[Edge, ...]:
    providers = dict.fromkeys(AMBIENT, RUNTIME)
    for node in nodes.values():
        for port in node.provides:
            if port in providers:
                rule = f"is provided by {providers[port]} and by {node.name}; only one may"
                problems.append(Problem(key=f"{node.name}.provides", value=port, rule=rule))
            providers.setdefault(port, node.name)
    edges = []
    for node in nodes.values():
        for port in (*node.needs, *node.wants):
            required = port in node.needs
            if port in AMBIENT:
                continue
            if port in providers:
                edges.append(
                    Edge(user=node.name, port=port, provider=providers[port], required=required)
                )
            elif required:
                problems.append(_missing(node, port))
    return tuple(edges)


def _missing(node: NodeSpec, port: str) -> Problem:
    group = SUPPLIERS.get(port)
    hint = "" if group is None else f"an option of the group {group} supplies it: {group}=..."
    return Problem(
        key=f"{node.name}.needs", value=port, rule="is provided by nothing chosen", hint=hint
    )


def _bad_workers(nodes: Nodes) -> list[Problem]:
    """`worker` is the front, the node itself, or a node that is a worker."""
    places = {FRONT} | {node.name for node in nodes.values() if node.is_worker}
    return [
        Problem(
            key=f"{node.name}.worker",
            value=node.worker,
            rule="is no worker of this plan",
            hint=f"there are {', '.join(sorted(places))}",
        )
        for node in nodes.values()
        if node.worker not in places
    ]


def _crossed_borders(nodes: Nodes, edges: Sequence[Edge]) -> list[Problem]:
    """Parts stay inside their worker, and workers do not talk to each other (trap M3)."""
    problems = []
    for edge in edges:
        user, provider = nodes[edge.user], nodes[edge.provider]
        in_front_to_worker = user.worker == FRONT and provider.is_worker
        is_upward = provider.is_worker and user.worker == provider.name
        if in_front_to_worker or (user.worker == provider.worker and not is_upward):
            continue
        rule = (
            f"comes from {provider.name} in {provider.worker}, which {user.name} in {user.worker} "
            "cannot reach: parts are used inside their worker, and the front uses workers only"
        )
        problems.append(Problem(key=f"{user.name}.{edge.port}", value=edge.port, rule=rule))
    return problems


def _ordered(nodes: Nodes, edges: Sequence[Edge], problems: list[Problem]) -> tuple[str, ...]:
    """Kahn's algorithm, ties by declaration; what is left over is a cycle."""
    waits = {name: {e.provider for e in edges if e.user == name} for name in nodes}
    order: list[str] = []
    while ready := next((n for n in nodes if n not in order and waits[n] <= set(order)), None):
        order.append(ready)
    if left := [name for name in nodes if name not in order]:
        rule = f"cannot be built: {', '.join(left)} wait for each other"
        problems.append(Problem(key="plan", value=None, rule=rule))
    return tuple(order)


def _sourced(problems: Sequence[Problem], sources: Mapping[str, str]) -> list[Problem]:
    """Say where each value was set, where the rule did not."""
    return [
        p if p.source or p.key not in sources else replace(p, source=sources[p.key])
        for p in problems
    ]
