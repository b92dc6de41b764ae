"""A client's JSON Schema made into one that the constraint engine enforces word by word.

What it cannot enforce is refused by name, what says nothing about values is left out. The
result refers to its parts as `#/$defs/<number>` only. Knows no grammar and no tokens.
"""

import math
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from mlxcel.generation.schema_checks import (
    SchemaRefused,
    check_number,
    check_pattern,
    check_text,
    check_value,
    factor_states,
    whole,
    with_bounds_on_multiples,
)

Schema = dict[str, Any] | bool

MAX_PATTERNS = 32
"""Of one object: the engine compares every two of them."""
MAX_FACTORS = 10_000
"""One state each, built before anything else: 0.2 s of work."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
FORMATS = (
    *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri"),
    "uuid",
)
UNENFORCED = frozenset(
    (
        *("not", "if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies"),
        *("propertyNames", "contains", "minContains", "maxContains", "uniqueItems"),
        *("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
        *("extends", "disallow", "divisibleBy"),
    )
)
"""Keywords of any draft that bind values and that the engine cannot enforce. Words of no draft
bind nothing (JSON Schema core, 4.3.1) and are left out like titles."""
HARMLESS = {"uniqueItems": False, "unevaluatedItems": True, "unevaluatedProperties": True}
"""Values with which they bind nothing."""
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07", "2019-09")


class Lowering:
    """One schema. `root` is the result, `parts` what it refers to, by number, and `paths` where
    each part stood. Raises SchemaRefused; the depth of `source` must be bounded."""

    def __init__(self, source: Schema) -> None:
        self._source = source
        self._is_old = isinstance(source, dict) and any(
            draft in str(source.get("$schema")) for draft in OLD_DRAFTS
        )
        self._numbers: dict[str, str] = {}
        self.factors: dict[int | float, int] = {}
        self.parts: dict[str, Schema] = {}
        self.root = self.schema(source, "#")
        while len(self.parts) < len(self._numbers):
            pointer, number = list(self._numbers.items())[len(self.parts)]
            self.parts[number] = self.schema(self._target(pointer), pointer)

    @property
    def paths(self) -> dict[str, str]:
        return {number: pointer for pointer, number in self._numbers.items()}

    def schema(self, node: object, path: str) -> Schema:
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            raise SchemaRefused(path, "", "a schema must be an object or a boolean")
        self._refuse(node, path)
        lowered: dict[str, Any] = {}
        for keyword, read in READERS.items():
            if keyword in node:
                read(self, node, path, lowered)
        return with_bounds_on_multiples(lowered, path) if "multipleOf" in lowered else lowered

    def listed(self, node: dict[str, Any], keyword: str, path: str) -> list[Schema]:
        value = node[keyword]
        if not isinstance(value, list) or not value:
            raise SchemaRefused(path, keyword, "must be an array of schemas, not empty")
        return [self.schema(part, f"{path}/{keyword}/{n}") for n, part in enumerate(value)]

    def named(self, node: dict[str, Any], keyword: str, path: str) -> dict[str, Schema]:
        value = node[keyword]
        if not isinstance(value, dict):
            raise SchemaRefused(path, keyword, "must be an object of schemas")
        return {
            name: self.schema(part, f"{path}/{keyword}/{escaped(name)}")
            for name, part in value.items()
        }

    def reference(self, value: object, path: str) -> str:
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            rule = f"{value!r:.80} is not within this schema; write '#' or '#/...'"
            raise SchemaRefused(path, "$ref", rule)
        pointer = unquote(value)
        self._target(pointer)
        return self._numbers.setdefault(pointer, str(len(self._numbers)))

    def _refuse(self, node: dict[str, Any], path: str) -> None:
        for keyword in node.keys() & UNENFORCED:
            if keyword not in HARMLESS or HARMLESS[keyword] is not node[keyword]:
                rule = "this keyword cannot be enforced here; leave it out"
                raise SchemaRefused(path, keyword, rule)
        if "$id" in node and path != "#":
            raise SchemaRefused(path, "$id", "only the root may have one; refer by '#/...'")
        if "prefixItems" in node and self._is_old:
            rule = "the draft that $schema names has no such keyword; leave $schema out"
            raise SchemaRefused(path, "prefixItems", rule)

    def _target(self, pointer: str) -> object:
        node: Any = self._source
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            else:
                raise SchemaRefused("#", "$ref", f"{pointer!r:.80} points to nothing")
        return node


def escaped(name: str) -> str:
    """As a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


Reader = Callable[[Lowering, dict[str, Any], str, dict[str, Any]], None]
"""Reads one keyword: (all of it, the node, its path, the result to add to)."""


def _type(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    value = node["type"]
    names = value if isinstance(value, list) else [value]
    if not names or any(name not in TYPES for name in names):
        raise SchemaRefused(path, "type", f"must be one or several of {', '.join(TYPES)}")
    out["type"] = value


def _count(keyword: str) -> Reader:
    def read(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
        out[keyword] = whole(node[keyword], path, keyword)

    return read


def _bound(keyword: str) -> Reader:
    def read(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
        check_number(node[keyword], path, keyword)
        out[keyword] = node[keyword]

    return read


def _factor(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    value = node["multipleOf"]
    check_number(value, path, "multipleOf")
    low.factors[value] = factor_states(value, path)
    if sum(low.factors.values()) > MAX_FACTORS:
        rule = f"all different ones together, without their points, at most {MAX_FACTORS}"
        raise SchemaRefused(path, "multipleOf", rule)
    out["multipleOf"] = value


def _exclusive(keyword: str, inclusive: str, side: int) -> Reader:
    def read(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
        value = node[keyword]
        if isinstance(value, bool):  # as draft 4 had it: it says how the other is meant
            if not value or inclusive not in out:
                return
            value = out.pop(inclusive)
        check_number(value, path, keyword)
        out[keyword] = value
        if value == int(value) and node.get("type") != "integer":
            # llguidance 1.9.1 takes 32 for a number above 32 and below 32.5.
            out[keyword] = value + side * max(1e-9, math.ulp(value))

    return read


def _pattern(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    if not isinstance(node["pattern"], str):
        raise SchemaRefused(path, "pattern", "must be a string")
    check_pattern(node["pattern"], path, "pattern")
    out["pattern"] = node["pattern"]


def _format(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    if "string" not in node.get("type", "string"):
        return  # int32 and the like
    if node["format"] not in FORMATS:
        rule = f"{node['format']!r:.60} cannot be enforced; known: {', '.join(FORMATS)}"
        raise SchemaRefused(path, "format", rule)
    out["format"] = node["format"]


def _items(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    if not isinstance(node["items"], list):
        out["items"] = low.schema(node["items"], f"{path}/items")
        return
    if "prefixItems" in node:
        raise SchemaRefused(path, "items", "must be one schema beside prefixItems")
    out["prefixItems"] = low.listed(node, "items", path)  # as drafts before 2020-12 had it
    if "additionalItems" in node:
        out["items"] = low.schema(node["additionalItems"], f"{path}/additionalItems")


def _properties(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    out["properties"] = low.named(node, "properties", path)
    for name in out["properties"]:
        check_text(name, path, "properties")


def _patterns(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    out["patternProperties"] = low.named(node, "patternProperties", path)
    if len(out["patternProperties"]) > MAX_PATTERNS:
        raise SchemaRefused(path, "patternProperties", f"at most {MAX_PATTERNS} patterns")
    for pattern in out["patternProperties"]:
        check_pattern(pattern, path, "patternProperties")


def _additional(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    value = node["additionalProperties"]
    out["additionalProperties"] = low.schema(value, f"{path}/additionalProperties")


def _required(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    names = node["required"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SchemaRefused(path, "required", "must be an array of strings")
    for name in names:
        check_text(name, path, "required")
    out["required"] = list(dict.fromkeys(names))


def _min_properties(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    wanted = whole(node["minProperties"], path, "minProperties")
    if wanted <= len(out.get("required", ())):
        return
    if wanted > 1:
        # The engine counts what it wrote, and among free names one may come twice.
        rule = "more than 1 can be enforced only where as many names are required"
        raise SchemaRefused(path, "minProperties", rule)
    out["minProperties"] = wanted


def _enum(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    if not isinstance(node["enum"], list) or not node["enum"]:
        raise SchemaRefused(path, "enum", "must be an array, not empty")
    check_value(node["enum"], path, "enum")
    out["enum"] = node["enum"]


def _const(_: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    check_value(node["const"], path, "const")
    out["const"] = node["const"]


def _ref(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    out["$ref"] = f"#/$defs/{low.reference(node['$ref'], path)}"


def _in_place(keyword: str) -> Reader:
    def read(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
        out[keyword] = low.listed(node, keyword, path)

    return read


def _prefix(low: Lowering, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
    out["prefixItems"] = low.listed(node, "prefixItems", path)


READERS: dict[str, Reader] = {
    "type": _type,
    "minLength": _count("minLength"),
    "maxLength": _count("maxLength"),
    "pattern": _pattern,
    "format": _format,
    "minimum": _bound("minimum"),
    "maximum": _bound("maximum"),
    "exclusiveMinimum": _exclusive("exclusiveMinimum", "minimum", 1),
    "exclusiveMaximum": _exclusive("exclusiveMaximum", "maximum", -1),
    "multipleOf": _factor,
    "prefixItems": _prefix,
    "items": _items,
    "minItems": _count("minItems"),
    "maxItems": _count("maxItems"),
    "properties": _properties,
    "patternProperties": _patterns,
    "additionalProperties": _additional,
    "required": _required,
    "minProperties": _min_properties,
    "maxProperties": _count("maxProperties"),
    "enum": _enum,
    "const": _const,
    "$ref": _ref,
    "allOf": _in_place("allOf"),
    "anyOf": _in_place("anyOf"),
    "oneOf": _in_place("oneOf"),
}
"""In the order the result has them: the engine joins what stands before and after a keyword that
brings schemas of its own, such as allOf, as if each were a schema apart."""
