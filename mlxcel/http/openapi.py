"""The OpenAPI document of a running server: its mounted rows and what `schemas/wire/` says of them.

What holds for all routes (keys, bodies that are too large, our own faults) is said here; what a
route takes and tells stands in its row.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from mlxcel import __version__
from mlxcel.http import wire
from mlxcel.http.deps import Deps
from mlxcel.http.routes import Row, is_served
from mlxcel.http.wire import Schema

VERSION = "3.1.0"
JSON = "application/json"
EVENTS = "text/event-stream"
OPENAI = "openai_error"
"""Of what is looked at before it is known what a route is of: keys and sizes."""
ALWAYS = (HTTPStatus.REQUEST_URI_TOO_LONG, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
"""Any request may get these."""
OUR_FAULT = HTTPStatus.INTERNAL_SERVER_ERROR
NOT_HERE = HTTPStatus.NOT_IMPLEMENTED
INTEGERS = (-(2**63), 2**64 - 1)
"""What the parser of bodies keeps as one."""
SCHEMES: Mapping[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}

Content = dict[str, Any]
"""By media type."""

_PART = re.compile(r"<(\w+)(?::\w+)?>")


def document(rows: Iterable[Row], deps: Deps) -> dict[str, Any]:
    builder = _Document(deps)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        for index, path in enumerate(row.paths):
            shown = paths.setdefault(deps.options.api_prefix + _PART.sub(r"{\1}", path), {})
            for method in row.methods:
                shown[method.lower()] = builder.operation(row, method, index)
    schemes = {"securitySchemes": dict(SCHEMES)} if deps.keys else {}
    return {
        "openapi": VERSION,
        "info": {"title": "mlxcel", "version": __version__},
        "paths": paths,
        "components": {"schemas": dict(sorted(builder.schemas.items())), **schemes},
    }


class _Document:
    """Collects the schemas that operations refer to."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._requires_model: bool = deps.options.routes["require_model"]
        self.schemas: dict[str, Schema] = {}

    def operation(self, row: Row, method: str, index: int) -> dict[str, Any]:
        words = [row.id, *([method.lower()] if len(row.methods) > 1 else [])]
        said: dict[str, Any] = {
            "operationId": "_".join([*words, *([str(index)] if index else [])]),
            "summary": row.wire.help,
        }
        if parameters := list(self._parameters(row)):
            said["parameters"] = parameters
        if row.wire.body is not None:
            said["requestBody"] = self._body(row.wire.body)
        said["responses"] = self._answers(row, method)
        if self._wants_key(row):
            said["security"] = [{name: []} for name in SCHEMES]
        return said

    def _wants_key(self, row: Row) -> bool:
        is_open = row.is_open and not self._deps.options.api_prefix
        return bool(self._deps.keys) and not is_open

    def _parameters(self, row: Row) -> Iterator[dict[str, Any]]:
        parts = {"path": row.wire.path, "query": row.wire.query, "header": row.wire.headers}
        for place, name in parts.items():
            if name is None:
                continue
            fields = wire.read(name)
            required = fields.get("required", ())
            for field, rule in fields["properties"].items():
                bare = {word: said for word, said in rule.items() if word != "description"}
                yield {
                    "name": field,
                    "in": place,
                    "required": field in required,
                    "description": rule.get("description", ""),
                    "schema": bare,
                }

    def _body(self, name: str) -> dict[str, Any]:
        return {
            "required": not wire.read(name).get("x-optional", False),
            "content": {JSON: {"schema": self._asked(name)}},
        }

    def _answers(self, row: Row, method: str) -> dict[str, Any]:
        found: dict[int, list[Content]] = {}
        for status, content in (*self._bodies(row), *self._refusals(row)):
            found.setdefault(int(status), []).append(content)
        return {
            str(status): {"description": HTTPStatus(status).phrase}
            | ({} if method == "HEAD" else _any_of(contents))
            for status, contents in sorted(found.items())
        }

    def _bodies(self, row: Row) -> Iterator[tuple[int, Content]]:
        if not is_served(row, self._deps):
            return
        for status, name in row.wire.answers.items():
            content = {} if name is None else self._content(name)
            if status == HTTPStatus.OK and row.wire.stream is not None:
                # Of each event: before OpenAPI 3.2 there is no word for a stream as a whole.
                data = self._told(row.wire.stream)
                event = {"type": "object", "properties": {"data": data}, "required": ["data"]}
                content[EVENTS] = {"schema": event}
            yield status, content

    def _refusals(self, row: Row) -> Iterator[tuple[int, Content]]:
        own, general = self._content(row.wire.envelope), self._content(OPENAI)
        statuses = row.wire.errors if is_served(row, self._deps) else (NOT_HERE,)
        yield from ((status, own) for status in (*statuses, OUR_FAULT))
        yield from ((status, general) for status in ALWAYS)
        if row.wire.body is not None:
            yield HTTPStatus.REQUEST_ENTITY_TOO_LARGE, general
        if self._wants_key(row):
            yield HTTPStatus.UNAUTHORIZED, general

    def _content(self, name: str) -> Content:
        media = wire.read(name).get("contentMediaType", JSON)
        return {media: {"schema": self._told(name)}}

    def _told(self, name: str) -> Schema:
        return self._add(name, wire.read)

    def _asked(self, name: str) -> Schema:
        return self._add(name, self._fields)

    def _fields(self, name: str) -> Schema:
        schema: Schema = bounded(wire.fields_of(name))
        if "model" in schema.get("required", ()) and not self._requires_model:
            schema["required"] = [field for field in schema["required"] if field != "model"]
        return schema

    def _add(self, name: str, make: Callable[[str], Schema]) -> Schema:
        if name not in self.schemas:
            self.schemas[name] = {}  # it may refer to itself
            schema = make(name)
            for reference in wire.referred(schema):
                self._add(wire.file_of(reference), make)
            self.schemas[name] = _located(schema)
        return {"$ref": f"#/components/schemas/{name}"}


def _any_of(contents: Iterable[Content]) -> dict[str, Any]:
    """One status may have bodies of several kinds."""
    merged: Content = {}
    for content in contents:
        for media, said in content.items():
            known: Any = merged.get(media, said)
            is_same = known["schema"] == said["schema"]
            both = {"schema": {"anyOf": [known["schema"], said["schema"]]}}
            merged[media] = known if is_same else both
    return {"content": merged} if merged else {}


def _located(value: Any) -> Any:
    """References to other files become references into the document."""
    match value:
        case {"$ref": str(reference)}:
            name, _, pointer = reference.partition("#")
            return {"$ref": f"#/components/schemas/{name.removesuffix(wire.SUFFIX)}{pointer}"}
        case dict():
            return {word: _located(said) for word, said in value.items()}
        case list():
            return [_located(item) for item in value]
    return value


def bounded(value: Any) -> Any:
    """Integers with the bounds of the parser, where they have none of their own."""
    match value:
        case dict():
            inner = {word: bounded(said) for word, said in value.items()}
            kinds = value.get("type")
            if "integer" in (kinds if isinstance(kinds, list) else [kinds]):
                return dict(zip(("minimum", "maximum"), INTEGERS, strict=True)) | inner
            return inner
        case list():
            return [bounded(item) for item in value]
    return value
