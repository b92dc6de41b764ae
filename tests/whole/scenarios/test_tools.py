"""Tools through the official client: whole, streamed, and by its helpers."""

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

import openai
import pytest
from openai import pydantic_function_tool
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel, Field

from mlxcel.core.byte_vocab import END
from tests.whole.calls import named, tool
from tests.whole.program import Program
from tests.whole.scenarios.asking import (
    body,
    chat,
    chunks,
    events,
    joined,
    reason_of,
    refused,
    settle,
    text_of,
)
from tests.whole.scenarios.conftest import CALL, Connect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [tool("weather", CITY, description="Weather of a city."), tool("clock", {})]
ID = re.compile(r"call_[0-9a-f]{24}")
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
OSLO: tuple[str, Any] = ("weather", {"city": "Oslo"})
NOW: tuple[str, Any] = ("clock", {})


class Weather(BaseModel):
    """The weather of a city."""

    city: str = Field(max_length=12)
    unit: Literal["C", "F"]


def read(calls: Any) -> list[tuple[str, Any]]:
    """Names and arguments; their ids are of OpenAI's kind, and no two are the same."""
    assert all(call.type == "function" and ID.fullmatch(call.id) for call in calls)
    assert len({call.id for call in calls}) == len(calls)
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def put_together(found: Sequence[ChatCompletionChunk]) -> list[tuple[str, Any]]:
    """By hand, as applications do: id and name from the first piece, arguments from all."""
    calls: dict[int, dict[str, str]] = {}
    deltas = [each.delta for chunk in found for each in chunk.choices]
    for piece in (piece for delta in deltas for piece in delta.tool_calls or ()):
        assert piece.function is not None
        if piece.index not in calls:
            assert piece.id is not None
            assert ID.fullmatch(piece.id)
            assert piece.type == "function"
            assert piece.function.name is not None
            calls[piece.index] = {"name": piece.function.name, "arguments": ""}
        else:
            assert (piece.id, piece.type, piece.function.name) == (None, None, None)
        calls[piece.index]["arguments"] += piece.function.arguments or ""
    assert list(calls) == list(range(len(calls)))
    return [(call["name"], json.loads(call["arguments"])) for call in calls.values()]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        pytest.param("call", None, [OSLO], id="one"),
        pytest.param("call two", None, [OSLO, NOW], id="parallel"),
        pytest.param("say and call", "One moment. ", [OSLO], id="beside-text"),
    ],
)
@pytest.mark.parametrize("choice", ["auto", None], ids=["auto", "absent"])
async def test_a_call_of_the_models_own(
    connect: Connect,
    scripted: Program,
    choice: str | None,
    text: str,
    content: str | None,
    calls: Any,
) -> None:
    ai = connect(scripted)
    fields: Any = {"tools": TOOLS} | ({} if choice is None else {"tool_choice": choice})
    answer = await chat(ai, text, **fields)
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    assert (message.content or "").strip() == (content or "").strip()
    assert (message.content is None) == (content is None)
    assert read(message.tool_calls) == calls
    found = await chunks(ai, text, **fields)
    assert reason_of(found) == "tool_calls"
    assert joined(found) == (message.content or "")
    assert put_together(found) == calls


async def test_no_call_is_read_where_none_is_wanted(connect: Connect, scripted: Program) -> None:
    for fields in ({"tools": TOOLS, "tool_choice": "none"}, {}):
        answer = await chat(connect(scripted), "call", **fields)
        assert (text_of(answer), answer.choices[0].finish_reason) == (CALL, "stop")


async def test_a_tool_that_was_not_offered_is_not_called(
    connect: Connect, scripted: Program
) -> None:
    answer = await chat(connect(scripted), "call two", tools=TOOLS[1:])
    assert read(answer.choices[0].message.tool_calls) == [NOW]


async def test_parallel_calls_is_a_field_we_take(connect: Connect, scripted: Program) -> None:
    for wanted in (True, False):
        answer = await chat(connect(scripted), "call", tools=TOOLS, parallel_tool_calls=wanted)
        assert read(answer.choices[0].message.tool_calls) == [OSLO]


async def test_a_result_goes_back(connect: Connect, scripted: Program) -> None:
    """The turns of an agent: message and results as they are, and the model says its piece."""
    ai = connect(scripted)
    message = (await chat(ai, "call two", tools=TOOLS)).choices[0].message
    assert message.tool_calls is not None
    results: list[Any] = [
        {"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls
    ]
    turns: list[Any] = [*body("call two")["messages"], message.to_dict(), *results]
    turns.append({"role": "user", "content": "and so"})
    after = await chat(ai, messages=turns, tools=TOOLS)
    assert (text_of(after), after.choices[0].finish_reason) == ("It rains in Oslo.", "stop")
    # The pydantic object itself, as the SDK lets it through; with all its keys, nulls included.
    turns[1] = message
    assert text_of(await chat(ai, messages=turns, tools=TOOLS)) == "It rains in Oslo."
    turns[1] = message.model_dump()
    assert text_of(await chat(ai, messages=turns, tools=TOOLS)) == "It rains in Oslo."


async def test_the_helper_accumulates_calls(connect: Connect, scripted: Program) -> None:
    strict = [tool("weather", CITY | {"additionalProperties": False}, strict=True)]
    told, final = await events(connect(scripted), "call", tools=strict)
    done = [event for event in told if event.type == "tool_calls.function.arguments.done"]
    assert [(event.name, event.index, event.parsed_arguments) for event in done] == [
        ("weather", 0, {"city": "Oslo"})
    ]
    pieces = [event for event in told if event.type == "tool_calls.function.arguments.delta"]
    assert "".join(event.arguments_delta for event in pieces) == done[0].arguments
    [choice] = final.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert read(choice.message.tool_calls) == [OSLO]


async def test_required_makes_a_call(connect: Connect, thinker: Program) -> None:
    ai = connect(thinker)
    small = CITY | {"properties": {"city": {"type": "string", "maxLength": 5}}}
    tools = [tool("weather", small | {"additionalProperties": False}), tool("clock", NOTHING)]
    fields: Any = {"tools": tools, "tool_choice": "required", "max_tokens": 300, "seed": 4}
    # What is open is closed soon, and after a call comes the end.
    fields["logit_bias"] = {str(token): 20.0 for token in (*b'"}', END)}
    fields["extra_body"] = {"thinking_budget": 0}
    answer = await chat(ai, **fields)
    assert answer.choices[0].finish_reason == "tool_calls"
    calls = read(answer.choices[0].message.tool_calls)
    assert {name for name, _ in calls} <= {"weather", "clock"}
    assert put_together(await chunks(ai, **fields)) == calls


@pytest.mark.slow
async def test_a_named_tool_is_called_by_a_real_model(connect: Connect, smollm2: Program) -> None:
    ai = connect(smollm2)
    sent = body("What is the weather in Paris?", temperature=0, max_tokens=60)
    sent |= {"tools": [pydantic_function_tool(Weather, name="weather")]}
    sent |= {"tool_choice": named("weather")}
    answer = await settle(ai.chat.completions.parse(**sent))
    [call] = answer.choices[0].message.tool_calls
    assert call.function.parsed_arguments.city == "Paris"
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"tool_choice": "maybe"}, "tool_choice", id="unknown-word"),
        pytest.param({"tool_choice": named("no")}, "tool_choice.function.name", id="not-there"),
        pytest.param({"tool_choice": "required", "tools": []}, "tool_choice", id="no-tools"),
        pytest.param({"tools": [tool("f", {})] * 129}, "tools", id="129-tools"),
        pytest.param({"tools": [tool(" ", {})]}, "tools[0].function.name", id="blank-name"),
        pytest.param(
            {"tool_choice": "required", "response_format": {"type": "json_object"}},
            "response_format",
            id="two-forms",
        ),
    ],
)
async def test_a_wrong_choice_is_a_bad_request(
    connect: Connect, scripted: Program, fields: dict[str, Any], param: str
) -> None:
    ai = connect(scripted)
    for stream in (False, True):
        sent = body(**{"tools": TOOLS} | fields, stream=stream)
        error = await refused(openai.BadRequestError, ai.chat.completions.create, **sent)
        assert (error.param, error.type) == (param, "invalid_request_error")
