"""A plan as text, as a Mermaid flowchart, or as JSON."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from mlxcel.graph.spec import FRONT, Clamp, NodeSpec, Plan

REDACTED = "[redacted]"


def text(plan: Plan) -> str:
    """Workers with their parts, then the front, then what differs from what was asked."""
    rows = [row for worker in _workers(plan) for row in _worker_rows(plan, worker)]
    rows += [_row(node.name, node) for node in _front(plan)]
    rows += [_clamp_row(clamp) for clamp in plan.clamps]
    rows += [("warning", warning) for warning in plan.warnings]
    return "\n".join(_aligned(rows))


def mermaid(plan: Plan) -> str:
    """One box per process, one arrow per port; a dotted arrow is a want."""
    lines = ["flowchart LR", *_box(FRONT, "front", _front(plan))]
    for worker in _workers(plan):
        inside = (*plan.parts_of(worker.name), worker)
        lines += _box(f"{worker.name}_worker", f"{worker.name} worker", inside)
    for edge in plan.edges:
        line = "--" if edge.required else "-."
        end = "-->" if edge.required else ".->"
        lines.append(f"  {edge.provider}_node {line} {edge.port} {end} {edge.user}_node")
    return "\n".join(lines)


def as_json(plan: Plan, secret_names: Iterable[str]) -> str:
    """The whole plan. Options with one of the names are not shown."""
    plain = dataclasses.asdict(plan)
    return json.dumps(_masked(plain, frozenset(secret_names)), indent=2, ensure_ascii=False)


def clamp_text(clamp: Clamp) -> str:
    """`scheduler.parallel 4 -> 1`, as the log shows it too."""
    return f"{clamp.key} {_word(clamp.asked)} -> {_word(clamp.used)}"


def _workers(plan: Plan) -> list[NodeSpec]:
    return [plan.nodes[name] for name in plan.order if plan.nodes[name].is_worker]


def _front(plan: Plan) -> list[NodeSpec]:
    return [plan.nodes[name] for name in plan.order if plan.nodes[name].worker == FRONT]


def _worker_rows(plan: Plan, worker: NodeSpec) -> list[tuple[str, ...]]:
    parts = plan.parts_of(worker.name)
    rows = [_row(worker.name, worker)]
    for part in parts:
        rows.append(_row(f"{'└─' if part is parts[-1] else '├─'} {part.name}", part))
    return rows


def _row(label: str, node: NodeSpec) -> tuple[str, ...]:
    about = (node.summary, _ports("needs", node.needs), _ports("wants", node.wants))
    built = node.factory.rpartition(":")[2]
    return (label, node.choice, built, "  ".join(part for part in about if part))


def _ports(verb: str, ports: Sequence[str]) -> str:
    return f"{verb} {', '.join(ports)}" if ports else ""


def _clamp_row(clamp: Clamp) -> tuple[str, ...]:
    return ("clamp", f"{clamp_text(clamp)}  {clamp.reason}")


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """All but the last cell of a row are padded; the width of a column is its own."""
    widths: dict[int, int] = {}
    for row in rows:
        for column, cell in enumerate(row[:-1]):
            widths[column] = max(widths.get(column, 0), len(cell))
    return [
        "  ".join([*(f"{c:<{widths[i]}}" for i, c in enumerate(row[:-1])), row[-1]]).rstrip()
        for row in rows
    ]


def _box(box: str, title: str, nodes: Iterable[NodeSpec]) -> list[str]:
    # The suffix keeps node ids apart from box ids and from Mermaid's own words (`end`, `graph`).
    inside = [
        f'    {node.name}_node["{node.name}: {node.factory.rpartition(":")[2]}"]' for node in nodes
    ]
    return [f'  subgraph {box}["{title}"]', *inside, "  end"]


def _masked(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: REDACTED if key in names and item else _masked(item, names)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item, names) for item in value]
    return value


def _word(value: object) -> str:
    """As YAML writes it."""
    return str(value) if isinstance(value, str) else json.dumps(value)
