"""References of a lowered schema: that they lead somewhere, and that some value is finite.

Works on what `json_schema.Lowering` gives.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from mlxcel.generation.json_schema import Schema
from mlxcel.generation.schema_checks import SchemaRefused

IN_PLACE = ("allOf", "anyOf", "oneOf")


def check_progress(parts: Mapping[str, Schema], paths: Mapping[str, str]) -> None:
    """Raises SchemaRefused where a part refers to itself for the very same value."""
    same = {number: set(_same_value(part)) for number, part in parts.items()}
    checked: set[str] = set()
    for start in parts:
        reached: set[str] = set()
        waiting = list(same[start])
        while waiting:
            number = waiting.pop()
            if number == start:
                rule = "refers to itself without going into a property or an item"
                raise SchemaRefused(paths[start], "$ref", rule)
            if number not in reached | checked:
                reached.add(number)
                waiting.extend(same[number])
        checked.add(start)


def without_endless(root: Schema, parts: Mapping[str, Schema]) -> tuple[Schema, dict[str, Schema]]:
    """The same schema, but what only an endless value satisfies is `false`."""
    finite: set[str] = set()
    while more := {n for n, part in parts.items() if n not in finite and _ends(part, finite)}:
        finite |= more
    kept = {number: _pruned(part, finite) for number, part in parts.items() if number in finite}
    return _pruned(root, finite), kept


def target(node: dict[str, Any]) -> str:
    """The number of the part that a `$ref` names."""
    return str(node["$ref"]).rpartition("/")[2]


def _same_value(node: Schema) -> Iterator[str]:
    if isinstance(node, bool):
        return
    if "$ref" in node:
        yield target(node)
    for keyword in IN_PLACE:
        for option in node.get(keyword, ()):
            yield from _same_value(option)


def _ends(node: Schema, finite: set[str]) -> bool:
    """Whether some value may satisfy it, as far as depth goes."""
    if isinstance(node, bool):
        return node
    if "$ref" in node and target(node) not in finite:
        return False
    if not all(_ends(option, finite) for option in node.get("allOf", ())):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in node and not any(_ends(option, finite) for option in node[keyword]):
            return False
    match node.get("type"):
        case "object":
            return all(_ends(_property(node, name), finite) for name in node.get("required", ()))
        case "array":
            first = node.get("prefixItems", [])[: node.get("minItems", 0)]
            rest = [node.get("items", True)] if node.get("minItems", 0) > len(first) else []
            return all(_ends(item, finite) for item in (*first, *rest))
    return True


def _property(node: dict[str, Any], name: str) -> Schema:
    schema: Schema = node.get("properties", {}).get(name)
    if schema is not None:
        return schema
    return True if "patternProperties" in node else node.get("additionalProperties", True)


def _pruned(node: Schema, finite: set[str]) -> Schema:
    if isinstance(node, bool):
        return node
    if "$ref" in node and target(node) not in finite:
        return False
    return {keyword: _pruned_value(keyword, value, finite) for keyword, value in node.items()}


def _pruned_value(keyword: str, value: Any, finite: set[str]) -> Any:
    if keyword in ("items", "additionalProperties"):
        return _pruned(value, finite)
    if keyword in ("properties", "patternProperties"):
        return {name: _pruned(part, finite) for name, part in value.items()}
    if keyword in (*IN_PLACE, "prefixItems"):
        return [_pruned(part, finite) for part in value]
    return value
