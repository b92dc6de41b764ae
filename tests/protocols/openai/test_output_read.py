"""From a chat body to what the answer must look like (contract http-openai, 5)."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind
from tests.protocols.openai.reading import chat_read

SCHEMA = {"type": "object", "properties": {"größe": {"const": 1}}}
SOURCE = '{"type":"object","properties":{"größe":{"const":1}}}'


def schema(**inner: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": inner}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(None, id="null"),
        pytest.param({}, id="no-type"),
        pytest.param({"type": None}, id="null-type"),
        pytest.param({"type": "text"}, id="text"),
    ],
)
def test_free_text(sent: Any) -> None:
    assert chat_read(response_format=sent) == chat_read()
    assert chat_read().request.output is None


@pytest.mark.parametrize(
    ("sent", "output"),
    [
        pytest.param(
            {"type": "json_object"}, OutputFormat(kind=OutputKind.JSON_OBJECT), id="any-object"
        ),
        pytest.param(
            schema(schema=SCHEMA),
            OutputFormat(kind=OutputKind.JSON_SCHEMA, source=SOURCE),
            id="schema",
        ),
        pytest.param(
            schema(schema=SCHEMA, name="n", strict=False, description="d"),
            OutputFormat(kind=OutputKind.JSON_SCHEMA, source=SOURCE),
            id="schema-with-a-name",
        ),
        pytest.param(
            schema(schema={}), OutputFormat(kind=OutputKind.JSON_SCHEMA, source="{}"), id="empty"
        ),
    ],
)
def test_the_output_format(sent: Any, output: OutputFormat) -> None:
    assert chat_read(response_format=sent).request.output == output


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"not": value}
    return value


@pytest.mark.parametrize(
    ("sent", "param", "says"),
    [
        pytest.param("json", "response_format", 'wants an object, got string "json"', id="string"),
        pytest.param([], "response_format", "wants an object, got array", id="array"),
        pytest.param(
            {"type": "xml"},
            "response_format.type",
            'wants "text", "json_object" or "json_schema", got "xml"',
            id="other-type",
        ),
        pytest.param({"type": 1}, "response_format.type", "wants a string", id="type-as-number"),
        pytest.param(
            {"type": "regex"}, "response_format.type", 'got "regex"', id="no-kind-of-this-route"
        ),
        pytest.param(
            {"type": "json_schema"}, "response_format.json_schema", "is required", id="bare"
        ),
        pytest.param(
            {"type": "json_schema", "schema": SCHEMA},
            "response_format.json_schema",
            "is required",
            id="schema-a-level-too-high",
        ),
        pytest.param(
            schema(name="n"), "response_format.json_schema.schema", "is required", id="no-schema"
        ),
        pytest.param(
            schema(schema=None),
            "response_format.json_schema.schema",
            "is required",
            id="null-schema",
        ),
        pytest.param(
            schema(schema="{}"),
            "response_format.json_schema.schema",
            "wants an object",
            id="schema-as-text",
        ),
        pytest.param(
            schema(schema=SCHEMA, name=1),
            "response_format.json_schema.name",
            "wants a string",
            id="name-as-number",
        ),
        pytest.param(
            schema(schema=SCHEMA, strict="yes"),
            "response_format.json_schema.strict",
            "wants a boolean",
            id="strict-as-string",
        ),
        pytest.param(
            schema(schema=nested(100_000)),
            "response_format.json_schema.schema",
            "nested far too deep",
            id="beyond-recursion",
        ),
    ],
)
def test_a_format_that_cannot_be_used_is_named(sent: Any, param: str, says: str) -> None:
    with pytest.raises(BadField, match=says) as caught:
        chat_read(response_format=sent)
    assert caught.value.param == param
