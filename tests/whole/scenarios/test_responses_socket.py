"""/v1/responses as a WebSocket, through OpenAI's own client."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openai import OpenAI
from openai.resources.responses.responses import ResponsesConnection
from websockets.exceptions import InvalidStatus

from tests.whole.program import Program
from tests.whole.scenarios.conftest import KEY, PREFIX

pytestmark = [
    pytest.mark.slow,
    # The client's own way to connect (openai 3.57 with websockets 17).
    pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning"),
]

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
TOOLS: Any = [
    {
        "type": "function",
        "name": name,
        "description": name,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": False,
    }
    for name in ("weather", "clock")
]


@contextmanager
def socket(program: Program, path: str = "/v1", key: str = "none") -> Iterator[ResponsesConnection]:
    ai = OpenAI(base_url=program.url + path, api_key=key, max_retries=0)
    with ai, ai.responses.connect() as connection:
        yield connection


def last(connection: ResponsesConnection, **fields: Any) -> Any:
    """The last event of the response that is asked for."""
    connection.response.create(model="any", **fields)
    for event in connection:
        if event.type in ENDS:
            return event
    raise AssertionError("the connection has ended")


def test_an_agent_works_on_one_connection(scripted: Program) -> None:
    with socket(scripted) as connection:
        warm = last(connection, generate=False, store=False, tools=TOOLS, instructions="be brief")
        assert (warm.type, warm.response.output) == ("response.completed", [])
        asked = {"tools": TOOLS, "instructions": "be brief", "store": False}
        called = last(
            connection, input="call two", previous_response_id=warm.response.id, **asked
        ).response
        names = [item.name for item in called.output if item.type == "function_call"]
        assert names == ["weather", "clock"]
        results: Any = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
            for item in called.output
        ]
        said: Any = {"role": "user", "content": "and so"}
        done = last(connection, input=[*results, said], previous_response_id=called.id, **asked)
        assert done.response.output_text == "It rains in Oslo."
        lost = last(connection, input="hi", previous_response_id=called.id)
        assert (lost.type, lost.status) == ("error", 400)
        assert lost.error.code == "previous_response_not_found"
        broken = last(connection, input="break late")
        assert broken.type == "response.failed"
        assert last(connection, input="hello").response.status == "completed"


def test_two_conversations_run_on_one_connection(scripted: Program) -> None:
    with socket(scripted) as connection:
        for name in ("a", "b"):
            connection.response.create(model="any", input=f"I am {name}", stream_id=name)
        told: dict[Any, str] = {}
        for event in connection:
            if event.type == "response.completed":
                told[event.stream_id] = event.response.output_text
            if len(told) == 2:
                break
    assert told == {"a": "I am a", "b": "I am b"}


def test_a_connection_wants_a_key(narrow: Program) -> None:
    with pytest.raises(InvalidStatus) as refusal, socket(narrow, f"{PREFIX}/v1", "wrong"):
        pass
    response = refusal.value.response
    assert response.status_code == 401
    assert json.loads(response.body or b"")["error"]["code"] == "invalid_api_key"
    with socket(narrow, f"{PREFIX}/v1", KEY) as connection:
        event = last(connection, input="hi")
        assert event.error.code == "model_not_found"


def test_a_warmup_is_read_ahead(thinker: Program) -> None:
    """By a real engine: the turn after it reads its own words alone."""
    rules: Any = {"instructions": f"Be brief. {'Heed this. ' * 30}", "store": False}
    with socket(thinker) as connection:
        warm = last(connection, generate=False, **rules).response
        assert warm.usage.input_tokens_details.cached_tokens == 0
        done = last(
            connection, previous_response_id=warm.id, input="hi", max_output_tokens=2, **rules
        ).response
    used = done.usage
    assert used.input_tokens - used.input_tokens_details.cached_tokens < 40
