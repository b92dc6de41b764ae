"""What an answer of /v1/messages must look like: `output_config.format`."""

import json

from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.request import ToolChoice
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.extras import check_size

DEPTH = 100
CHARS = 1_048_576
"""Of a schema."""


def read_output(fields: Reader, choice: ToolChoice) -> OutputFormat | None:
    """Raises BadField. The effort that stands beside it changes nothing here."""
    config = fields.nested("output_config")
    asked = None if config is None else config.nested("format")
    if asked is None:
        return None
    kind = asked.required_string("type")
    if kind != OutputKind.JSON_SCHEMA:
        raise asked.refuse("type", f'wants "json_schema", got {shown(kind)}')
    schema = asked.mapping("schema")
    if schema is None:
        raise asked.refuse("schema", "is required; it wants a JSON Schema")
    check_size(asked, "schema", schema, depth=DEPTH, chars=CHARS)
    if choice.is_forced:
        rule = "cannot be combined with a tool_choice that forces a call; leave one of them out"
        raise fields.refuse(asked.path, rule)
    source = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return OutputFormat(kind=OutputKind.JSON_SCHEMA, source=source, param=asked.path)
