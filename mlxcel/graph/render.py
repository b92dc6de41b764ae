"""A plan as text, as a Mermaid flowchart, or as JSON."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlxcel.config.keys import read
from mlxcel.config.problems import HIDDEN
from mlxcel.core.listener import shown
from mlxcel.core.window import effective_window, slot_count, slot_share
from mlxcel.graph.spec import AMBIENT, FRONT, Clamp, NodeSpec, Plan


def text(plan: Plan) -> str:
    """Workers with their parts, then the front, then what differs from what was asked."""
    rows = [row for worker in _workers(plan) for row in _worker_rows(plan, worker)]
    rows += [_row(plan, node.name, node) for node in _front(plan)]
    rows += [("cache", _cache(node.options["cache"])) for node in _caching(plan)]
    rows += [("clamp", clamp_text(clamp)) for clamp in plan.clamps]
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
    """The plan; what of the tree matters is in the options. Those with one of the names are not
    shown."""
    plain = dataclasses.asdict(plan)
    del plain["tree"]
    return json.dumps(_masked(plain, frozenset(secret_names)), indent=2, ensure_ascii=False)


def clamp_text(clamp: Clamp) -> str:
    """`scheduler.parallel 4 -> 1: the reason`, as the log shows it too."""
    return f"{clamp.key} {_word(clamp.asked)} -> {_word(clamp.used)}: {clamp.reason}"


def _workers(plan: Plan) -> list[NodeSpec]:
    return [plan.nodes[name] for name in plan.order if plan.nodes[name].is_worker]


def _front(plan: Plan) -> list[NodeSpec]:
    return [plan.nodes[name] for name in plan.order if plan.nodes[name].worker == FRONT]


def _worker_rows(plan: Plan, worker: NodeSpec) -> list[tuple[str, ...]]:
    parts = plan.parts_of(worker.name)
    rows = [_row(plan, worker.name, worker)]
    for part in parts:
        branch = "└─" if part is parts[-1] else "├─"
        rows.append(_row(plan, f"{branch} {part.name}", part))
    return rows


def _row(plan: Plan, label: str, node: NodeSpec) -> tuple[str, ...]:
    about = (_summary(plan, node.section), _ports("needs", node.needs), _ports("wants", node.wants))
    built = node.factory.rpartition(":")[2]
    return (label, node.choice, built, "  ".join(part for part in about if part))


def _summary(plan: Plan, section: str) -> str:
    """A few words on a node, where its section has any worth showing."""
    tree = plan.tree
    match section:
        case "model":
            return f"{_model_name(plan)}  precision {read(tree, 'model.precision')}"
        case "draft":
            path = read(tree, "draft.path")
            return "heads of the model" if path is None else path.rstrip("/").rpartition("/")[2]
        case "engine":
            return f"{read(tree, 'workers.placement')}  {_slots(plan)}"
        case "server":
            address = shown(read(tree, "server.host"), read(tree, "server.port"))
            tls = "  TLS" if read(tree, "server.tls.cert") is not None else ""
            return f"{address}{tls}"
        case _:
            return ""


def _caching(plan: Plan) -> list[NodeSpec]:
    """The workers that keep KV; a script keeps none."""
    return [worker for worker in _workers(plan) if "cache" in worker.options]


def _cache(cache: Mapping[str, Any]) -> str:
    """How KV is stored, and what of it outlives a request."""
    size, bits, prompt = cache["max_kv_size"], cache["kv"]["bits"], cache["prompt"]
    parts = [f"KV as {cache['kv']['mode']}{f' in {bits} bits' if bits else ''}"]
    parts += [f"of the newest {size} tokens"] if size else []
    if not prompt["enabled"]:
        return "  ".join([*parts, "nothing kept"])
    parts += [f"up to {prompt['max_entries']} requests kept"]
    parts += [f"files in {cache['disk']['path']}"] if cache["disk"]["path"] is not None else []
    prefix = cache["prefix_dir"]
    parts += [f"system messages in {prefix}"] if prefix is not None else []
    parts += ["by conversation"] if cache["conversations"]["enabled"] else []
    return "  ".join(parts)


def _slots(plan: Plan) -> str:
    rows = slot_count(plan.tree["scheduler"])
    share = slot_share(read(plan.tree, "limits.ctx_size"), rows)
    window = effective_window(share, plan.card.train_window if plan.card is not None else 0)
    size = f" of {window} tokens" if window else ""
    return f"{rows} slot{'s' * (rows != 1)}{size}"


def _model_name(plan: Plan) -> str:
    if plan.card is not None:
        bits = plan.card.quantization_bits
        return f"{plan.card.name}{f' ({bits}-bit)' if bits else ''}"
    path = read(plan.tree, "model.path")
    return str(path if path is not None else read(plan.tree, "model.source.name"))


def _ports(verb: str, ports: Sequence[str]) -> str:
    """Without those that no node of the plan provides."""
    shown = [port for port in ports if port not in AMBIENT]
    return f"{verb} {', '.join(shown)}" if shown else ""


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
            key: HIDDEN if key in names and item else _masked(item, names)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item, names) for item in value]
    return value


def _word(value: object) -> str:
    """As YAML writes it."""
    return str(value) if isinstance(value, str) else json.dumps(value)
