"""The field `text`: what the answer must look like."""

import json
from collections.abc import Mapping
from typing import Any

from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.extras import check_size

NAME = "text.format"
TYPES = '"text", "json_object" or "json_schema"'
DEPTH = 100
"""Of a schema. A response repeats it, and JSON deeper than 254 levels cannot be written here."""
CHARS = 1_048_576
FREE: Mapping[str, Any] = {"type": "text"}


def read_text(fields: Reader) -> tuple[OutputFormat | None, Mapping[str, Any]]:
    """None: free text; and the field as the response repeats it."""
    text = fields.nested("text")
    if text is None:
        return None, {"format": FREE}
    verbosity = text.string("verbosity")
    output, form = _format(text.nested("format"))
    return output, {"format": form} | ({} if verbosity is None else {"verbosity": verbosity})


def _format(asked: Reader | None) -> tuple[OutputFormat | None, Mapping[str, Any]]:
    kind = None if asked is None else asked.string("type")
    if asked is None or kind in (None, "text"):
        return None, FREE
    if kind == OutputKind.JSON_OBJECT:
        return OutputFormat(kind=OutputKind.JSON_OBJECT, param=NAME), {"type": kind}
    if kind != OutputKind.JSON_SCHEMA:
        raise asked.refuse("type", f"wants {TYPES}, got {shown(kind)}")
    # Flat is the form of this route, nested that of chat completions: clients send both.
    nested = asked.nested("json_schema")
    inner = asked if nested is None else nested
    schema = inner.mapping("schema")
    if schema is None:
        raise inner.refuse("schema", "is required; it wants a JSON Schema")
    check_size(inner, "schema", schema, depth=DEPTH, chars=CHARS)
    name, strict = inner.string("name"), inner.boolean("strict")
    echo = {
        "type": kind,
        "name": "response" if name is None else name,
        "description": inner.string("description"),
        "schema": schema,
        "strict": strict is True,
    }
    source = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return OutputFormat(kind=OutputKind.JSON_SCHEMA, source=source, param=NAME), echo
