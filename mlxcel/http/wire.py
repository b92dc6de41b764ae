"""The bodies of requests and answers as JSON Schema: one file of `schemas/wire/` each.

What a client sends is checked by the codecs; here it is only described. The files of requests say
in few words what holds for all of them: `x-same-as` is another spelling of a field, an optional
field may be null, and `allOf` puts the fields of another file in.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mlxcel.core.shipped import data_dir

Schema = dict[str, Any]

SUFFIX = ".json"
NULL: Schema = {"type": "null"}
NOTES = ("title", "description", "default", "examples", "x-default-key")
"""What says something about a value and allows or forbids none."""


def folder() -> Path:
    return data_dir("schemas") / "wire"


@cache
def names() -> frozenset[str]:
    return frozenset(path.stem for path in folder().glob(f"*{SUFFIX}"))


@cache
def read(name: str) -> Schema:
    """As it stands in the file."""
    schema: Schema = json.loads((folder() / f"{name}{SUFFIX}").read_text("utf-8"))
    del schema["$schema"]
    return schema


def referred(schema: Any) -> Iterator[str]:
    """Every `$ref` in it."""
    match schema:
        case {"$ref": str(reference)}:
            yield reference
        case dict():
            for item in schema.values():
                yield from referred(item)
        case list():
            for item in schema:
                yield from referred(item)


def file_of(reference: str) -> str:
    """The name of the file that `timings.json#/properties/cache` leads into."""
    return reference.partition("#")[0].removesuffix(SUFFIX)


@cache
def fields_of(name: str) -> Schema:
    """A request, or a part of one, whole: the fields of the files it refers to are its own, and
    those that are other spellings say all that the first one does."""
    schema = _spelled(_joined(read(name)))
    return schema if schema.pop("x-null", True) is False else _with_null(schema)


def _joined(schema: Schema) -> Schema:
    """Its own fields first."""
    joined = {word: said for word, said in schema.items() if word != "allOf"}
    rules: list[Schema] = []
    for part in schema.get("allOf", ()):
        if "$ref" not in part:
            rules.append(part)
            continue
        other = _joined(read(file_of(part["$ref"])))
        joined["properties"] = joined.get("properties", {}) | other["properties"]
        required = [*joined.get("required", ()), *other.get("required", ())]
        joined |= {"required": required} if required else {}
        rules += other.get("allOf", ())
    return joined | ({"allOf": rules} if rules else {})


def _spelled(schema: Schema) -> Schema:
    fields: Schema = schema.get("properties", {})
    spellings = {name: rule["x-same-as"] for name, rule in fields.items() if "x-same-as" in rule}
    if not spellings:
        return schema
    whole = {
        name: fields[spellings[name]] | {"description": f"Another spelling of {spellings[name]}."}
        if name in spellings
        else rule
        for name, rule in fields.items()
    }
    rules = [_not_both(*pair) for pair in _pairs(spellings)]
    return schema | {"properties": whole, "allOf": [*schema.get("allOf", ()), *rules]}


def _pairs(spellings: dict[str, str]) -> Iterator[tuple[str, str]]:
    for place, (name, first) in enumerate(spellings.items()):
        yield first, name
        for other, same in list(spellings.items())[place + 1 :]:
            if same == first:
                yield name, other


def _not_both(one: str, other: str) -> Schema:
    given = {"not": NULL}
    return {"not": {"required": [one, other], "properties": {one: given, other: given}}}


def _with_null(schema: Schema) -> Schema:
    """Null in a field that is not required is the same as leaving it out, at every depth."""
    whole = dict(schema)
    required = schema.get("required", ())
    if "properties" in schema:
        whole["properties"] = {
            name: _with_null(rule) if name in required else _or_null(_with_null(rule))
            for name, rule in schema["properties"].items()
        }
    if isinstance(schema.get("items"), dict):
        whole["items"] = _with_null(schema["items"])
    for word in ("anyOf", "allOf"):
        if word in schema:
            whole[word] = [_with_null(rule) for rule in schema[word]]
    return whole


def _or_null(rule: Schema) -> Schema:
    if not set(rule) - set(NOTES):
        return rule
    if "enum" in rule and "type" not in rule:
        return rule if None in rule["enum"] else rule | {"enum": [*rule["enum"], None]}
    if isinstance(rule.get("type"), str) and not {"anyOf", "enum", "const"} & set(rule):
        return rule if rule["type"] == "null" else rule | {"type": [rule["type"], "null"]}
    if isinstance(rule.get("type"), list):
        return rule if "null" in rule["type"] else rule | {"type": [*rule["type"], "null"]}
    notes = {word: said for word, said in rule.items() if word in NOTES}
    bare = {word: said for word, said in rule.items() if word not in NOTES}
    return notes | {"anyOf": [bare, NULL]}
