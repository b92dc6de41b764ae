"""The rules of the tree, read from `schemas/`: types, bounds, units, secrets.

The files refer to each other and branch on `kind`; here they become one plain schema of the
tree at hand, in which every mapping lists its `properties`.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from mlxcel.config.paths import data_dir

Schema = dict[str, Any]


@cache
def _file(name: str) -> Schema:
    loaded: Schema = json.loads((data_dir("schemas") / name).read_text("utf-8"))
    return loaded


def tree_schema(tree: Mapping[str, Any]) -> Schema:
    """The schema for this tree: references followed, branches taken by each section's `kind`."""
    return _plain(_file("tree.schema.json"), "tree.schema.json", tree)


def section_schema(section: str) -> Schema:
    """The schema of a section that has no branches: `live`."""
    name = f"{section}.schema.json"
    return _plain(_file(name), name, {})


def every_key() -> frozenset[str]:
    """Each dotted key that some choice of options has."""
    schemas = (tree_schema(tree) for tree in _KINDS)
    return frozenset(key for schema in schemas for key, _ in walk(schema))


def secrets() -> frozenset[str]:
    """Keys whose values are never shown."""
    return _marked("x-secret")


def additive() -> frozenset[str]:
    """Lists whose values from flags and variables add up instead of replacing each other."""
    return _marked("x-additive")


def has_keys(key: str) -> bool:
    """Whether a key is a section whose keys are named, unlike a free mapping."""
    rules = (rule_of(tree_schema(tree), key) for tree in _KINDS)
    return any(rule is not None and "properties" in rule for rule in rules)


@cache
def _marked(keyword: str) -> frozenset[str]:
    schemas = (tree_schema(tree) for tree in _KINDS)
    return frozenset(
        key for schema in schemas for key, rule in walk(schema) if rule.get(keyword) is True
    )


def walk(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Every named key below a schema, sections first."""
    for name, rule in schema.get("properties", {}).items():
        key = f"{prefix}{name}"
        yield key, rule
        yield from walk(rule, f"{key}.")


def rule_of(schema: Schema, key: str) -> Schema | None:
    """The rule of a dotted key; of a free mapping's entry, the rule all its entries share."""
    at: Any = schema
    for name in key.split("."):
        at = at.get("properties", {}).get(name, at.get("additionalProperties"))
        if not isinstance(at, dict):
            return None
    found: Schema = at
    return found


_KINDS = (
    *(
        {"model": {"kind": "mlx"}, "engine": {"kind": "mlx"}, "draft": {"kind": kind}}
        for kind in ("auto", "prompt_lookup", "full_model", "dflash", "mtp")
    ),
    {"model": {"kind": "echo"}, "engine": {"kind": "echo"}, "draft": {"kind": "none"}},
)


def _plain(schema: Schema, file: str, value: object) -> Schema:
    if "$ref" in schema:
        schema, file = _follow(schema, file)
    if "oneOf" in schema:
        return _plain(_branch(schema["oneOf"], value), file, value)
    # `$schema` in a part would make jsonschema leave our number rules for its own.
    plain = {word: said for word, said in schema.items() if word != "$schema"}
    at = value if isinstance(value, Mapping) else {}
    if "properties" in plain:
        rules = plain["properties"].items()
        plain["properties"] = {n: _plain(rule, file, at.get(n)) for n, rule in rules}
    for keyword in ("additionalProperties", "items"):
        if isinstance(plain.get(keyword), dict):
            plain[keyword] = _plain(plain[keyword], file, None)
    return plain


def _follow(schema: Schema, file: str) -> tuple[Schema, str]:
    """The schema a `$ref` names, under the words that stand beside the `$ref`."""
    name, _, pointer = schema["$ref"].partition("#")
    file = name if name else file
    found = _file(file)
    for step in pointer.strip("/").split("/") if pointer else ():
        found = found[step]
    beside = {word: said for word, said in schema.items() if word != "$ref"}
    return {**found, **beside}, file


def _branch(branches: list[Schema], value: object) -> Schema:
    """The branch of the value's `kind`; of an unknown one, a schema that says what may be."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    for branch in branches:
        if branch["properties"]["kind"]["const"] == kind:
            return branch
    kinds = [branch["properties"]["kind"]["const"] for branch in branches]
    return {"type": "object", "required": ["kind"], "properties": {"kind": {"enum": kinds}}}
