"""One reference page for each file of route rows: what every route takes and what it answers, from
the rows and the files of `schemas/wire/` that they name."""

from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from docs.tables import code, table, top
from mlxcel.config.keys import read
from mlxcel.config.paths import data_dir
from mlxcel.config.problems import shown
from mlxcel.http import wire
from mlxcel.http.wire import Schema

CONF = data_dir("conf")
ROWS = CONF / "routes" / "rows"
PARTS = (("path", "In the path"), ("query", "In the query"), ("headers", "Headers"))
DEPTH = 4
"""Objects in objects that are told as fields of their own."""


def pages() -> Mapping[str, Path]:
    """The file of rows of each page."""
    return {f"routes-{file.stem}.md": file for file in sorted(ROWS.glob("*.yaml"))}


def page(file: Path) -> Iterator[str]:
    rows: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    yield from top(f"Routes: {file.stem}", f"{ROWS.parent.name}/rows/{file.name} and schemas/wire/")
    yield "An explicit null in a field that is not required is the same as leaving it out. Fields"
    yield "that are not listed are ignored. An integer is one without a point: 7, not 7.0."
    yield "Any request may also get 414, 431 and 500, one with a body 413, one without a key 401."
    told: list[str] = []
    for row in rows.values():
        yield from _route(row, told)
    yield "\n## Bodies of answers"
    for name in told:
        yield from _answer(name)


def _route(row: Mapping[str, Any], told: list[str]) -> Iterator[str]:
    first, *others = row["paths"]
    yield f"\n## {', '.join(row['methods'])} {first}\n"
    also = f" Also at {', '.join(map(code, others))}." if others else ""
    yield row["help"] + also
    for part, title in PARTS:
        if part in row:
            yield f"\n{title}:\n"
            yield from _fields(wire.fields_of(row[part]), "")
    if "body" in row:
        yield from _body(wire.fields_of(row["body"]))
    yield "\nAnswers:\n"
    yield from table(("status", "body"), _answers(row, told))


def _body(schema: Schema) -> Iterator[str]:
    if "properties" in schema:
        may = "may be left out" if schema.get("x-optional") else "a JSON object"
        yield f"\nBody ({may}):\n"
        yield from _fields(schema, "")
    else:
        yield f"\nBody: {takes(schema)}. {schema.get('description', '')}".rstrip()
        for branch in schema.get("anyOf", ()):
            if "properties" in branch:
                yield "\nor with\n"
                yield from _fields(branch, "")


def _answers(row: Mapping[str, Any], told: list[str]) -> Iterator[tuple[str, str]]:
    for status, name in row["answers"].items():
        is_stream = "stream" in row and status == "200"
        if name is not None or not is_stream:
            yield status, "none" if name is None else _known(name, told)
        if is_stream:
            yield f"{status}, a stream", f"events with {_known(row['stream'], told)}"
    own = f"{row['dialect']}_error"
    for status in row.get("errors", ()):
        yield f"{status} {HTTPStatus(status).phrase}", _known(own, told)


def _known(name: str, told: list[str]) -> str:
    """Its name, and a place on the page for it and for all that it refers to."""
    if name not in told:
        told.append(name)
        for reference in wire.referred(wire.read(name)):
            _known(wire.file_of(reference), told)
    return _link(name)


def _answer(name: str) -> Iterator[str]:
    schema = wire.read(name)
    yield f"\n### {name}\n"
    described = schema.get("description")
    if not _inner(schema):
        says = f" {described}" if described else ""
        yield f"{schema['title']}: {takes(schema, nulls=True)}.{says}"
        return
    yield f"{schema['title']}{'; of each' if schema.get('type') == 'array' else ''}."
    if described:
        yield described
    for place, branch in enumerate(_inner(schema)):
        yield "\nor\n" if place else ""
        yield from table(("field", "is", "says"), _told_fields(branch, ""))


def _inner(schema: Schema) -> list[Schema]:
    """What has fields in it: itself, its entries, or its branches."""
    if "properties" in schema:
        return [schema]
    if schema.get("type") == "array":
        return _inner(schema["items"])
    branches = schema.get("anyOf", ())
    return list(branches) if branches and all("properties" in one for one in branches) else []


def _told_fields(schema: Schema, prefix: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, rule in schema["properties"].items():
        absent = "" if name in required else " (not always there)"
        yield code(prefix + name), takes(rule, nulls=True) + absent, rule.get("description", "")
        for inner, mark in _below(rule):
            yield from _told_fields(inner, f"{prefix}{name}{mark}.")


def _fields(schema: Schema, prefix: str) -> Iterator[str]:
    yield from table(("field", "takes", "default", "is"), _asked_fields(schema, prefix))


def _asked_fields(schema: Schema, prefix: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, rule in schema["properties"].items():
        default = "required" if name in required else _default(rule)
        whole = _followed(rule)
        yield code(prefix + name), takes(whole), default, rule.get("description", "")
        if prefix.count(".") < DEPTH:
            for inner, mark in _below(whole):
                yield from _asked_fields(inner, f"{prefix}{name}{mark}.")


def _followed(rule: Schema) -> Schema:
    items = rule.get("items", {})
    if "$ref" in items:
        return rule | {"items": wire.fields_of(wire.file_of(items["$ref"]))}
    return rule


def _below(rule: Schema) -> Iterator[tuple[Schema, str]]:
    """Objects with fields in a value, and how their place in it is written."""
    if "properties" in rule:
        yield rule, ""
    items = rule.get("items")
    if isinstance(items, dict):
        yield from ((inner, f"[]{mark}") for inner, mark in _below(items))
    for branch in rule.get("anyOf", ()):
        yield from _below(branch)


def _default(rule: Schema) -> str:
    if "x-default-key" in rule:
        key = rule["x-default-key"]
        return f"{code(shown(_configured(key)))} (`{key}`)"
    return code(shown(rule["default"])) if "default" in rule else ""


def _configured(key: str) -> Any:
    section, _, inner = key.partition(".")
    return read(_section(section), inner)


@cache
def _section(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CONF / name / "default.yaml").read_text("utf-8"))
    return loaded


def takes(rule: Schema, *, nulls: bool = False) -> str:
    """`an integer, at least 0, at most 20`. `nulls`: null is told; of requests it is said once that
    optional fields may be that."""
    if "$ref" in rule:
        return _link(wire.file_of(rule["$ref"]))
    if "contentSchema" in rule:
        return f"JSON of {takes(rule['contentSchema'], nulls=nulls)}"
    if "enum" in rule:
        return _one_of([value for value in rule["enum"] if nulls or value is not None])
    if "const" in rule:
        return code(shown(rule["const"]))
    if "type" not in rule:
        branches = rule.get("anyOf", ())
        if not branches:
            return "anything"
        told = [takes(one, nulls=nulls) for one in branches if nulls or one != wire.NULL]
        return " or ".join(dict.fromkeys(told))
    kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    words = [
        _word(kind, rule, nulls) for kind in kinds if nulls or kind != "null" or len(kinds) == 1
    ]
    return ", ".join([" or ".join(words), *_bounds(rule)])


def _word(kind: str, rule: Schema, nulls: bool) -> str:
    if kind == "array":
        items = rule.get("items")
        return f"an array of {_many(takes(items, nulls=nulls))}" if items else "an array"
    return {
        "integer": "an integer",
        "number": "a number",
        "string": "a string",
        "boolean": "true or false",
        "object": "an object",
        "null": "null",
    }[kind]


def _many(one: str) -> str:
    plain = {"a string": "strings", "an integer": "integers", "an object": "objects"}
    for word, more in plain.items():
        if one.startswith(word):
            return more + one.removeprefix(word).replace(", ", " of ", 1)
    return one


def _bounds(rule: Schema) -> Iterator[str]:
    for word, says in (
        ("minimum", "at least {}"),
        ("exclusiveMinimum", "more than {}"),
        ("maximum", "at most {}"),
        ("minLength", "at least {} characters"),
        ("maxLength", "at most {} characters"),
        ("minItems", "at least {} of them"),
        ("maxItems", "at most {} of them"),
        ("maxProperties", "at most {} entries"),
        ("pattern", "matching `{}`"),
    ):
        if word in rule:
            yield says.format(rule[word])


def _one_of(values: list[Any]) -> str:
    return code(shown(values[0])) if len(values) == 1 else ", ".join(code(shown(v)) for v in values)


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"
