"""`output_config.format`, and inputs of calls that no answer can hold."""

import json
from typing import Any

import orjson
import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.protocols.anthropic.answer import call_input
from tests.protocols.anthropic.reading import CLOCK, messages_read, turns

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


def test_a_schema_binds_the_answer() -> None:
    read = messages_read(output_config={"effort": "low", "format": FORMAT}, tools=[CLOCK])
    source = json.dumps(SCHEMA, separators=(",", ":"))
    assert read.request.output == OutputFormat(
        kind=OutputKind.JSON_SCHEMA, source=source, param="output_config.format"
    )


@pytest.mark.parametrize("config", [None, {}, {"effort": "max"}, {"format": None}])
def test_nothing_binds_where_none_is_sent(config: Any) -> None:
    assert messages_read(output_config=config).request.output is None


def nested(depth: int) -> dict[str, Any]:
    return {"x": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("output_config", {"output_config": "json"}),
        ("output_config.format.type", {"output_config": {"format": {"type": "xml"}}}),
        ("output_config.format.type", {"output_config": {"format": {"schema": SCHEMA}}}),
        ("output_config.format.schema", {"output_config": {"format": {"type": "json_schema"}}}),
        (
            "output_config.format.schema",
            {"output_config": {"format": FORMAT | {"schema": nested(200)}}},
        ),
        (
            "output_config.format",
            {
                "output_config": {"format": FORMAT},
                "tools": [CLOCK],
                "tool_choice": {"type": "any"},
            },
        ),
    ],
)
def test_what_cannot_be_kept_is_named(param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(BadField) as refused:
        messages_read(**fields)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        pytest.param('{"a": "\\ud83d"}', {"a": "?"}, id="half-a-pair"),
        pytest.param('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}, id="pair"),
        pytest.param('{"a": 1180591620717411303424}', {"a": 2.0**70}, id="beyond-64-bits"),
        pytest.param('{"a": NaN}', {}, id="nan"),
        pytest.param('{"a": ' + "[" * 400 + "]" * 400 + "}", {}, id="deep"),
        pytest.param('{"a": ' + "[" * 9000 + "]" * 9000 + "}", {}, id="deeper"),
        pytest.param("[1]", {}, id="array"),
    ],
)
def test_every_input_of_a_call_can_be_written(arguments: str, wanted: dict[str, Any]) -> None:
    found = call_input(arguments)
    assert found == wanted
    orjson.dumps(found)


FOUND = {
    "type": "search_result",
    "title": "Oslo",
    "source": "https://example.org/oslo",
    "content": [{"type": "text", "text": "It rains."}, {"type": "text", "text": "A lot."}],
    "citations": {"enabled": True},
}
READ = "Oslo\nhttps://example.org/oslo\nIt rains.\nA lot."


def test_what_was_found_is_read() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [FOUND]}
    question, tool = turns(("user", [FOUND, {"type": "text", "text": "q"}]), ("user", [result]))
    assert question.text == f"{READ}\nq"
    assert tool.text == READ
