"""Schemas that are not taken, with the keyword and the place that the client is told."""

import json
import time
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.generation.structured import compiled

DEFS = "$defs"


def refusal(source: object) -> str:
    text = source if isinstance(source, str) else json.dumps(source)
    with pytest.raises(BadField) as error:
        compiled(OutputFormat(kind=OutputKind.JSON_SCHEMA, source=text))
    assert error.value.param == "response_format"
    return error.value.message.removeprefix("response_format: ")


def nested(depth: int) -> str:
    return '{"items":' * depth + "{}" + "}" * depth


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        pytest.param("not", {}, id="not"),
        pytest.param("if", {}, id="if"),
        pytest.param("then", {}, id="then"),
        pytest.param("else", {}, id="else"),
        pytest.param("dependentSchemas", {}, id="dependentSchemas"),
        pytest.param("dependentRequired", {}, id="dependentRequired"),
        pytest.param("dependencies", {}, id="dependencies"),
        pytest.param("propertyNames", {}, id="propertyNames"),
        pytest.param("contains", {}, id="contains"),
        pytest.param("minContains", 1, id="minContains"),
        pytest.param("maxContains", 1, id="maxContains"),
        pytest.param("uniqueItems", True, id="uniqueItems"),
        pytest.param("unevaluatedItems", False, id="unevaluatedItems"),
        pytest.param("unevaluatedProperties", False, id="unevaluatedProperties"),
        pytest.param("$dynamicRef", "#x", id="dynamicRef"),
        pytest.param("$recursiveRef", "#", id="recursiveRef"),
        pytest.param("disallow", "string", id="disallow"),
    ],
)
@pytest.mark.parametrize("lenient", [False, True], ids=["plain", "lenient"])
def test_keyword_that_cannot_be_enforced_is_named(
    keyword: str, value: object, lenient: bool
) -> None:
    inner: dict[str, Any] = {"type": "array", keyword: value}
    source: dict[str, Any] = {"properties": {"a/b": {"items": inner}}}
    if lenient:  # a word of the engine's own, by which it would look away
        source["x-guidance"] = {"lenient": True}
    rule = "this keyword cannot be enforced here; leave it out"
    assert refusal(source) == f"{keyword} at #/properties/a~1b/items: {rule}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param({"type": "str"}, "type at #: must be one or several of null", id="type"),
        pytest.param({"type": []}, "type at #: ", id="no-type"),
        pytest.param({"format": "isbn"}, "format at #: 'isbn' cannot be enforced", id="format"),
        pytest.param({"minLength": -1}, "minLength at #: must be a whole number", id="count"),
        pytest.param({"maxItems": 1.5}, "maxItems at #: must be a whole number", id="half"),
        pytest.param({"maxItems": True}, "maxItems at #: must be a whole number", id="bool-count"),
        pytest.param({"minimum": "1"}, "minimum at #: must be a number", id="bound"),
        pytest.param({"maximum": 2**53 + 1}, "maximum at #: 9007199254740993 is b", id="too-large"),
        pytest.param({"const": 2**53 + 1}, "const at #: 9007199254740993 is beyond", id="const"),
        pytest.param({"enum": [{"a": [-(2.0**60)]}]}, "enum at #: -1.152", id="in-enum"),
        pytest.param({"multipleOf": 0}, "multipleOf at #: must be greater than 0", id="factor-0"),
        pytest.param({"multipleOf": 99991}, "multipleOf at #: ", id="large-factor"),
        pytest.param(
            {"anyOf": [{"multipleOf": 9.8}, {"multipleOf": 9903}]},
            "multipleOf at #/anyOf/1: all different ones together",
            id="sum-of-factors",
        ),
        pytest.param({"enum": []}, "enum at #: must be an array, not empty", id="enum"),
        pytest.param({"required": "a"}, "required at #: must be an array of", id="required"),
        pytest.param({"properties": []}, "properties at #: must be an object", id="properties"),
        pytest.param({"allOf": []}, "allOf at #: must be an array of schemas", id="allOf"),
        pytest.param({"items": 3}, "at #/items: a schema must be an object", id="no-schema"),
        pytest.param([], "at #: a schema must be an object or a boolean", id="array"),
        pytest.param("{", "not valid JSON", id="no-json"),
        pytest.param('{"const": NaN}', "not valid JSON: NaN is not JSON", id="nan"),
        pytest.param({"pattern": "("}, "pattern at #: cannot be enforced", id="wrong-pattern"),
        pytest.param({"pattern": "(?=a)b"}, "pattern at #: cannot be enforced", id="look-ahead"),
        pytest.param({"pattern": r"\bfoo"}, "pattern at #: cannot be enforced", id="border"),
        pytest.param({"pattern": r"^\x00a$"}, "pattern at #: control", id="control"),
        pytest.param({"pattern": "[a-z&&[b]]"}, "pattern at #: '&&'", id="set-operation"),
        pytest.param({"const": "\x01"}, "const at #: control characters", id="control-const"),
        pytest.param({"enum": ["\ud800"]}, "enum at #: control characters", id="surrogate"),
        pytest.param({"required": ["\x00"]}, "required at #: control", id="control-name"),
        pytest.param({"$ref": "http://x/y"}, "$ref at #: 'http://x/y' is not within", id="remote"),
        pytest.param({"$ref": "#here"}, "$ref at #: '#here' is not within", id="anchor"),
        pytest.param({"$ref": "#/$defs/a"}, "$ref at #: '#/$defs/a' points to nothing", id="lost"),
        pytest.param({"items": {"$id": "a"}}, "$id at #/items: only the root", id="inner-id"),
        pytest.param({"minProperties": 2}, "minProperties at #: more than 1", id="min-properties"),
        pytest.param(
            {"properties": {"a": {}}, "maxProperties": 1},
            "minProperties or maxProperties at #: cannot be enforced beside",
            id="max-properties",
        ),
        pytest.param(
            {"patternProperties": {"^a": {}, "b$": {"type": "null"}}},
            "patternProperties at #: two patterns may match the same name",
            id="overlap",
        ),
        pytest.param(
            {"patternProperties": {f"^{n}$": {} for n in range(33)}},
            "patternProperties at #: at most 32 patterns",
            id="many-patterns",
        ),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]},
            "prefixItems at #: the draft that $schema names",
            id="keyword-of-a-later-draft",
        ),
        pytest.param(
            {"properties": {"a": {"oneOf": [{"type": "string"}, {"maxLength": 3}]}}},
            "oneOf at #/properties/a: its options may hold together",
            id="oneOf",
        ),
    ],
)
def test_refused_with_keyword_and_place(source: object, words: str) -> None:
    assert refusal(source).startswith(words)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        pytest.param(False, "#", id="false"),
        pytest.param({"type": "integer", "minimum": 5, "maximum": 3}, "#", id="bounds"),
        pytest.param({"type": "string", "enum": [1]}, "#", id="enum"),
        pytest.param({"allOf": [{"type": "null"}, {"type": "object"}]}, "#", id="allOf"),
        pytest.param({"pattern": "^a{3}$", "maxLength": 2, "type": "string"}, "#", id="pattern"),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/x"}},
                "required": ["a"],
                DEFS: {"x": False},
            },
            "#/properties/a",
            id="required-false",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
            "#/properties/a",
            id="endless-object",
        ),
        pytest.param(
            {"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "#/items", id="endless-array"
        ),
    ],
)
def test_schema_that_nothing_satisfies(source: object, place: str) -> None:
    assert refusal(source) == f"at {place}: no value can satisfy this schema"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param(
            {"$ref": "#/$defs/a", DEFS: {"a": {"$ref": "#/$defs/a"}}},
            "$ref at #/$defs/a: refers to itself without",
            id="F2-self",
        ),
        pytest.param({"$ref": "#"}, "$ref at #: refers to itself without", id="root"),
        pytest.param(
            {
                "$ref": "#/$defs/a",
                DEFS: {
                    "a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]},
                    "b": {"allOf": [{"$ref": "#/$defs/a"}]},
                },
            },
            "$ref at #/$defs/a: refers to itself without",
            id="through-options",
        ),
        pytest.param(nested(5000), "nested deeper than 32 levels", id="F2-5000-levels"),
        pytest.param(nested(32), "nested deeper than 32 levels", id="33-levels"),
        pytest.param('{"const":' + "[" * 5000 + "]" * 5000 + "}", "nested deeper", id="value"),
        pytest.param(json.dumps({"title": "x" * 2_000_000}), "2000013 bytes long; at", id="F2-2MB"),
        pytest.param(json.dumps({"title": "x" * 65_524}), "65537 bytes long; at most", id="size"),
        pytest.param(
            {"anyOf": [{"$ref": "#/$defs/a"}] * 65, DEFS: {"a": {}}},
            "$ref at #: 65 of them; at most 64",
            id="65-references",
        ),
    ],
)
def test_limits_are_told_at_once(source: object, words: str) -> None:
    started = time.perf_counter()
    assert refusal(source).startswith(words)
    assert time.perf_counter() - started < 1.0
