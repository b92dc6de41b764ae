"""The field `response_format`: what the answer must look like.

Only the shape of the field is known here; whether a schema can be had is found out later.
"""

import json

from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.protocols.fields import Reader, shown

NAME = "response_format"
TYPES = '"text", "json_object" or "json_schema"'


def read_output(fields: Reader) -> OutputFormat | None:
    """None: free text."""
    asked = fields.nested(NAME)
    kind = None if asked is None else asked.string("type")
    if asked is None or kind in (None, "text"):
        return None
    if kind == OutputKind.JSON_OBJECT:
        return OutputFormat(kind=OutputKind.JSON_OBJECT)
    if kind == OutputKind.JSON_SCHEMA:
        return OutputFormat(kind=OutputKind.JSON_SCHEMA, source=_schema(asked))
    raise asked.refuse("type", f"wants {TYPES}, got {shown(kind)}")


def _schema(asked: Reader) -> str:
    """As JSON text. Names and strictness are read for their types alone: every schema binds."""
    inner = asked.nested("json_schema")
    if inner is None:
        raise asked.refuse("json_schema", 'is required; it wants an object with "schema" in it')
    inner.string("name")
    inner.boolean("strict")
    schema = inner.mapping("schema")
    if schema is None:
        raise inner.refuse("schema", "is required; it wants a JSON Schema")
    try:
        return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise inner.refuse("schema", "is nested far too deep to be read") from None
