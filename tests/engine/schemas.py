"""JSON Schemas of mixed kinds from a seed, to hold the constraint engine to them.

Each case says which keyword must be refused, if any. What else the engine cannot do may be
refused too; what it takes it must keep.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]

WORDS = ("name", "größe", "数", "a b", 'say "hi"', "tab\tnew\nline", "back\\slash", "a/b", "~x", "")
PATTERNS = ("^[a-z]{1,4}$", "^a|b$", "[0-9]", r"^\d{2}-\w+$", "^(foo|bar)?$", "^[^\\s]{2}$", "é+")
FORMATS = ("date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
UNSUPPORTED: tuple[tuple[str, object], ...] = (
    ("not", {"type": "string"}),
    ("if", {"minLength": 1}),
    ("dependentRequired", {"a": ["b"]}),
    ("dependentSchemas", {"a": {"required": ["b"]}}),
    ("dependencies", {"a": ["b"]}),
    ("propertyNames", {"pattern": "^a"}),
    ("contains", {"type": "null"}),
    ("uniqueItems", True),
    ("unevaluatedItems", False),
    ("unevaluatedProperties", False),
    ("$dynamicRef", "#a"),
    ("format", "isbn"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    schema: Schema
    refused: str | None = None
    """The keyword that the refusal must name; None: nothing has to be refused."""


def schemas(count: int, seed: int = 0) -> list[Case]:
    """The kinds take turns; the same arguments give the same cases."""
    rng = random.Random(seed)
    kinds = tuple(KINDS.items())
    cases = []
    for number in range(count):
        kind, make = kinds[number % len(kinds)]
        schema = make(rng)
        name = f"{number}-{kind}"
        if kind == "unsupported":
            keyword = schema.pop("refused")
            cases.append(Case(name=name, schema=schema, refused=keyword))
        else:
            cases.append(Case(name=name, schema=schema))
    return cases


def _integer(rng: random.Random) -> Schema:
    low = rng.randint(-2000, 2000)
    schema: Schema = {"type": "integer"}
    schema[rng.choice(("minimum", "exclusiveMinimum"))] = low
    schema[rng.choice(("maximum", "exclusiveMaximum"))] = low + rng.randint(2, 3000)
    if rng.random() < 0.3:
        schema["multipleOf"] = rng.choice((2, 5, 7, 100))
    return schema


def _number(rng: random.Random) -> Schema:
    low = round(rng.uniform(-50, 50), rng.randint(0, 4))
    schema: Schema = {"type": "number"}
    if rng.random() < 0.8:
        schema[rng.choice(("minimum", "exclusiveMinimum"))] = low
    if rng.random() < 0.8:
        schema[rng.choice(("maximum", "exclusiveMaximum"))] = low + rng.choice((0.5, 3, 1e4))
    if rng.random() < 0.3:
        schema["multipleOf"] = rng.choice((0.25, 0.5, 3))
    return schema


def _string(rng: random.Random) -> Schema:
    schema: Schema = {"type": "string"}
    if rng.random() < 0.7:
        schema["minLength"] = rng.randint(0, 3)
    schema["maxLength"] = rng.randint(3, 12)
    return schema


def _pattern(rng: random.Random) -> Schema:
    schema: Schema = {"type": "string", "pattern": rng.choice(PATTERNS)}
    if rng.random() < 0.5:
        schema["maxLength"] = rng.randint(2, 8)
    return schema


def _format(rng: random.Random) -> Schema:
    return {"type": "string", "format": rng.choice(FORMATS)}


def _value(rng: random.Random, depth: int = 2) -> Any:
    kind = rng.randrange(8 if depth else 6)
    match kind:
        case 0:
            return rng.choice((None, True, False))
        case 1:
            return rng.randint(-(10**6), 10**6)
        case 2:
            return round(rng.uniform(-100, 100), 3)
        case 6:
            return [_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        case 7:
            return {word: _value(rng, depth - 1) for word in rng.sample(WORDS, 2)}
        case _:
            return rng.choice((*WORDS, "日本語", "😀", "Straße", "\b\f"))


def _enum(rng: random.Random) -> Schema:
    return {"enum": [_value(rng) for _ in range(rng.randint(1, 6))]}


def _const(rng: random.Random) -> Schema:
    return {"const": _value(rng)}


def _scalar(rng: random.Random) -> Schema:
    makers = (_integer, _number, _string, _pattern, _format, _enum, _const)
    return rng.choice(makers)(rng)


def _any(rng: random.Random, depth: int) -> Schema:
    if depth == 0 or rng.random() < 0.4:
        return _scalar(rng)
    return rng.choice((_object, _array))(rng, depth - 1)


def _object(rng: random.Random, depth: int = 2) -> Schema:
    names = rng.sample(WORDS, rng.randint(1, 4))
    schema: Schema = {
        "type": "object",
        "properties": {name: _any(rng, depth) for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
    }
    match rng.randrange(4):
        case 0:
            schema["additionalProperties"] = False
        case 1:
            schema["additionalProperties"] = _scalar(rng)
        case 2:
            schema["patternProperties"] = {"^x[0-9]$": _scalar(rng)}
            schema["additionalProperties"] = False
    return schema


def _array(rng: random.Random, depth: int = 2) -> Schema:
    schema: Schema = {"type": "array", "items": _any(rng, depth)}
    if rng.random() < 0.5:
        schema["prefixItems"] = [_any(rng, depth) for _ in range(rng.randint(1, 2))]
    schema["minItems"] = rng.randint(0, 2)
    schema["maxItems"] = schema["minItems"] + rng.randint(0, 3)
    return schema


def _map(rng: random.Random) -> Schema:
    return {
        "type": "object",
        "additionalProperties": _scalar(rng),
        "minProperties": rng.randint(0, 1),
        "maxProperties": rng.randint(1, 3),
    }


def _ref(rng: random.Random) -> Schema:
    return {
        "type": "object",
        "properties": {
            "a": {"anyOf": [_scalar(rng), {"type": "null"}]},
            "b": {"$ref": "#/properties/a/anyOf/0"},
            "c": {"type": "array", "items": {"$ref": "#/$defs/p~1q"}, "maxItems": 3},
        },
        "required": ["b", "c"],
        "additionalProperties": False,
        "$defs": {"p/q": _object(rng, 1)},
    }


def _recursion(rng: random.Random) -> Schema:
    leaf = _scalar(rng)
    tree: Schema = {
        "type": "object",
        "properties": {
            "value": leaf,
            "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    chain = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/pair"}]}
    pair = {"type": "array", "prefixItems": [leaf, {"$ref": "#/$defs/chain"}], "items": False}
    start = rng.choice(("tree", "chain", "pair"))
    return {"$ref": f"#/$defs/{start}", "$defs": {"tree": tree, "chain": chain, "pair": pair}}


def _any_of(rng: random.Random) -> Schema:
    options = [_any(rng, 1) for _ in range(rng.randint(2, 4))]
    return {"anyOf": [*options, {"type": ["boolean", "null"]}]}


def _one_of(rng: random.Random) -> Schema:
    if rng.random() < 0.3:
        return {"oneOf": [_scalar(rng), _scalar(rng)]}
    options = []
    for number in range(rng.randint(2, 4)):
        option = _object(rng, 1)
        option["properties"] = {"kind": {"const": f"k{number}"}, **option["properties"]}
        option["required"] = ["kind", *option["required"]]
        options.append(option)
    return {"oneOf": options}


def _all_of(rng: random.Random) -> Schema:
    first, second = _object(rng, 1), _object(rng, 1)
    for part in (first, second):
        part.pop("additionalProperties", None)
        part.pop("patternProperties", None)
    number = {"allOf": [{"type": "number"}, {"minimum": -3}, {"maximum": rng.randint(0, 40)}]}
    return {"allOf": [first, second], "properties": {"n": number}, "required": ["n"]}


def _old_draft(rng: random.Random) -> Schema:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [_scalar(rng), _scalar(rng)], "minItems": 1},
            "part": {"$ref": "#/definitions/part"},
        },
        "required": ["pair", "part"],
        "definitions": {"part": _any(rng, 1)},
        "additionalProperties": False,
    }


def _annotated(rng: random.Random) -> Schema:
    return {
        "title": "Größe",
        "description": "x" * 100,
        "examples": [1],
        "default": None,
        "x-order": 3,
        "nullable": True,
        "x-guidance": {"lenient": True},
        **_any(rng, 2),
    }


def _untyped(rng: random.Random) -> Schema:
    bounds = [{"minLength": 1, "maxLength": 5}, {"maxItems": 2}, {"required": ["a"]}, {}]
    return {"properties": {"a": rng.choice(bounds)}, "required": ["a"], "type": "object"}


def _unsupported(rng: random.Random) -> Schema:
    keyword, value = rng.choice(UNSUPPORTED)
    inner: Schema = {"type": "string"} if keyword == "format" else _object(rng, 0)
    schema = {"type": "object", "properties": {"p": {**inner, keyword: value}}, "refused": keyword}
    if rng.random() < 0.5:
        schema["required"] = ["p"]
    return schema


KINDS: dict[str, Callable[[random.Random], Schema]] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "number": _number,
    "string": _string,
    "pattern": _pattern,
    "format": _format,
    "enum": _enum,
    "const": _const,
    "map": _map,
    "ref": _ref,
    "recursion": _recursion,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "old-draft": _old_draft,
    "annotated": _annotated,
    "untyped": _untyped,
    "unsupported": _unsupported,
}
