"""Tools of the Responses API through the official client: calls, results, choices among them."""

import json
from typing import Any

import openai
import pytest
from openai.lib._tools import ResponsesPydanticFunctionTool
from openai.types.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from mlxcel.core.byte_vocab import END
from tests.whole.program import Program
from tests.whole.scenarios.asking import Ai, refused, settle
from tests.whole.scenarios.conftest import CALL, Connect
from tests.whole.scenarios.responder import (
    CITY,
    CLOCK,
    TOOLS,
    as_sent,
    body,
    calls_of,
    check,
    check_events,
    count,
    events,
    helped,
    kinds_of,
    respond,
    result,
    thrice,
    turn,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

OSLO: tuple[str, Any] = ("weather", {"city": "Oslo"})
NOW: tuple[str, Any] = ("clock", {})
SEARCH: dict[str, Any] = {"type": "web_search", "search_context_size": "low"}
HOSTED: list[Any] = [
    SEARCH,
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "mcp", "server_label": "s", "server_url": "https://none.invalid"},
    {"type": "custom", "name": "patch", "description": "free text"},
    SEARCH,
]
MUST: dict[str, Any] = {
    "temperature": 0,
    "max_output_tokens": 300,
    # What is open is closed soon, and after a call comes the end.
    "extra_body": {
        "thinking_budget": 0,
        "logit_bias": {str(token): 20.0 for token in (*b'"}', END)},
    },
}
"""For a random model that has to make a call."""


class Weather(BaseModel):
    """The weather of a city."""

    model_config = ConfigDict(strict=True)
    city: str = Field(max_length=5)


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": [function(name) for name in names]}


def read(answer: Response) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in calls_of(answer)]


# Calls


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        pytest.param("call", "", [OSLO], id="one"),
        pytest.param("call two", "", [OSLO, NOW], id="parallel"),
        pytest.param("say and call", "One moment.", [OSLO], id="beside-text"),
    ],
)
async def test_a_call_of_the_models_own(
    connect: Connect, scripted: Program, text: str, said: str, calls: Any
) -> None:
    answer = await thrice(connect(scripted), text, tools=TOOLS)
    assert (read(answer), answer.output_text) == (calls, said)
    assert answer.status == "completed"
    assert kinds_of(answer) == ["function_call"] * len(calls) + ["message"] * bool(said)
    assert {call.status for call in calls_of(answer)} == {"completed"}


async def test_tools_are_repeated_as_they_were_sent(connect: Connect, scripted: Program) -> None:
    answer = await respond(connect(scripted), tools=[CITY | {"strict": True}, CLOCK])
    assert as_sent(answer)["tools"] == [
        CITY | {"strict": True},
        CLOCK | {"description": None, "strict": None},
    ]


async def test_no_call_is_read_where_none_is_wanted(connect: Connect, scripted: Program) -> None:
    for fields in ({"tools": TOOLS, "tool_choice": "none"}, {}):
        answer = await thrice(connect(scripted), "call", **fields)
        assert (answer.output_text, kinds_of(answer)) == (CALL, ["message"])


async def test_a_tool_that_was_not_offered_is_not_called(
    connect: Connect, scripted: Program
) -> None:
    answer = await thrice(connect(scripted), "call two", tools=[CLOCK])
    assert read(answer) == [NOW]


@pytest.mark.parametrize("most", [0, 1, 2], ids=str)
async def test_there_are_no_more_calls_than_allowed(
    connect: Connect, scripted: Program, most: int
) -> None:
    answer = await respond(connect(scripted), "call two", tools=TOOLS, max_tool_calls=most)
    found = await events(connect(scripted), "call two", tools=TOOLS, max_tool_calls=most)
    assert read(answer) == read(found[-1].response) == [OSLO, NOW][:most]
    assert answer.max_tool_calls == most


async def test_arguments_fill_a_class(connect: Connect, scripted: Program) -> None:
    ai, tools = connect(scripted), [openai.pydantic_function_tool(Weather, name="weather")]
    flat = {**tools[0]["function"], "type": "function"}
    made: Any = ResponsesPydanticFunctionTool(flat, Weather)  # type: ignore[arg-type]
    answer = await settle(ai.responses.parse(**body("call", tools=[made])))
    check(answer)
    assert answer.output[0].parsed_arguments == Weather(city="Oslo")
    assert answer.tools[0].strict is True
    told, final = await helped(ai, "call", tools=[made])
    assert final.output[0].parsed_arguments == Weather(city="Oslo")  # type: ignore[union-attr]
    assert told[-1].response.output[0].parsed_arguments == Weather(city="Oslo")


# Results


async def rounds(ai: Ai, after: Any, **fields: Any) -> None:
    """The last answer of a round trip, in all forms."""
    answer = await thrice(ai, after, tools=TOOLS, **fields)
    assert (answer.output_text, kinds_of(answer)) == ("It rains in Oslo.", ["message"])


@pytest.mark.parametrize("form", ["object", "dict", "nulls"])
async def test_a_result_goes_back_with_all_before(
    connect: Connect, scripted: Program, form: str
) -> None:
    """As the SDK's own objects, as what was on the wire, and with all keys of its types."""
    ai = connect(scripted)
    answer = await respond(ai, "call two", tools=TOOLS, store=False)
    forms: dict[str, Any] = {
        "object": answer.output,
        "dict": [item.to_dict() for item in answer.output],
        "nulls": [item.model_dump() for item in answer.output],
    }
    results = [result(call, "rain") for call in calls_of(answer)]
    sent = [turn("user", "call two"), *forms[form], *results, turn("user", "and so")]
    await rounds(ai, sent, store=False)


async def test_a_result_follows_a_response(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await respond(ai, "call two", tools=TOOLS)
    results = [result(call, "rain") for call in calls_of(answer)]
    sent = [*results, turn("user", "and so")]
    await rounds(ai, sent, previous_response_id=answer.id)
    # It comes to the same prompt as if all had been sent.
    whole = [turn("user", "call two"), *answer.output, *sent]
    chained = await count(ai, sent, previous_response_id=answer.id, tools=TOOLS)
    assert chained == await count(ai, whole, tools=TOOLS)


async def test_a_result_alone_is_input_enough(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await respond(ai, "say and call", tools=TOOLS)
    [call] = calls_of(answer)
    again = await respond(ai, [result(call, "rain")], previous_response_id=answer.id, tools=TOOLS)
    assert read(again) == [OSLO], "the script hears the user alone"


@pytest.mark.parametrize(
    "output",
    [
        pytest.param([{"type": "input_text", "text": "rain"}], id="part"),
        pytest.param([{"type": "text", "text": "rain"}], id="part-of-chat"),
        pytest.param("rain", id="string"),
    ],
)
async def test_forms_of_a_result(connect: Connect, scripted: Program, output: Any) -> None:
    ai = connect(scripted)
    answer = await respond(ai, "call", tools=TOOLS)
    [call] = calls_of(answer)
    alike = await count(ai, [result(call, "rain")], previous_response_id=answer.id)
    assert await count(ai, [result(call, output)], previous_response_id=answer.id) == alike


async def test_two_rounds_of_an_agent(connect: Connect, scripted: Program) -> None:
    """Calls, results, a call again, its result, the end: each by the id of the one before."""
    ai = connect(scripted)
    first = await respond(ai, "call two", tools=TOOLS, instructions="be an agent")
    sent: list[Any] = [result(call, "rain") for call in calls_of(first)]
    second = await respond(
        ai,
        [*sent, turn("user", "say and call")],
        tools=TOOLS,
        instructions="be an agent",
        previous_response_id=first.id,
    )
    assert read(second) == [OSLO]
    [call] = calls_of(second)
    last = await respond(
        ai,
        [result(call, "sun"), turn("user", "and so")],
        tools=TOOLS,
        instructions="be an agent",
        previous_response_id=second.id,
    )
    assert last.output_text == "It rains in Oslo."
    ids = {call.call_id for answer in (first, second) for call in calls_of(answer)}
    assert len(ids) == 3


# Choices


async def test_required_makes_a_call(connect: Connect, thinker: Program) -> None:
    answer = await thrice(connect(thinker), tools=TOOLS, tool_choice="required", **MUST)
    assert {call.name for call in calls_of(answer)} <= {"weather", "clock"}
    assert calls_of(answer)
    assert (answer.status, answer.tool_choice) == ("completed", "required")


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(function("clock"), id="flat"),
        pytest.param({"type": "function", "function": {"name": "clock"}}, id="as-in-chats"),
    ],
)
async def test_a_named_tool_is_called(connect: Connect, thinker: Program, choice: Any) -> None:
    answer = await thrice(connect(thinker), tools=TOOLS, tool_choice=choice, **MUST)
    assert [name for name, _ in read(answer)] == ["clock"]
    assert as_sent(answer)["tool_choice"] == function("clock")


async def test_some_of_the_tools_are_allowed(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await thrice(ai, "call two", tools=TOOLS, tool_choice=allowed("clock"))
    assert read(answer) == [NOW]
    assert as_sent(answer)["tool_choice"] == allowed("clock")
    assert len(answer.tools) == 2


async def test_a_call_of_one_that_is_allowed_is_required(
    connect: Connect, thinker: Program
) -> None:
    choice = allowed("weather", mode="required")
    answer = await thrice(connect(thinker), tools=TOOLS, tool_choice=choice, **MUST)
    assert {name for name, _ in read(answer)} == {"weather"}


@pytest.mark.parametrize("wanted", [True, False])
async def test_parallel_calls_is_a_field_we_take(
    connect: Connect, scripted: Program, wanted: bool
) -> None:
    ai = connect(scripted)
    answer = await thrice(ai, "call", tools=TOOLS, parallel_tool_calls=wanted)
    assert (read(answer), answer.parallel_tool_calls) == ([OSLO], wanted)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"tool_choice": "maybe"}, "tool_choice", id="unknown-word"),
        pytest.param({"tool_choice": function("no")}, "tool_choice.name", id="not-there"),
        pytest.param({"tool_choice": allowed("no")}, "tool_choice.tools[0].name", id="not-allowed"),
        pytest.param({"tool_choice": "required", "tools": []}, "tool_choice", id="no-tools"),
        pytest.param({"tools": [CITY] * 129}, "tools", id="129-tools"),
        pytest.param({"tools": [CITY | {"name": " "}]}, "tools[0].name", id="blank-name"),
        pytest.param({"tools": [{"name": "f"}]}, "tools[0].type", id="no-type"),
        pytest.param({"tool_choice": {"type": "web_search"}}, "tool_choice.type", id="hosted"),
        pytest.param(
            {"tool_choice": "required", "text": {"format": {"type": "json_object"}}},
            "text.format",
            id="two-forms",
        ),
    ],
)
async def test_a_wrong_choice_is_a_bad_request(
    connect: Connect, scripted: Program, fields: dict[str, Any], param: str
) -> None:
    ai = connect(scripted)
    for stream in (False, True):
        sent = body(**{"tools": [*TOOLS, SEARCH]} | fields, stream=stream)
        error = await refused(openai.BadRequestError, ai.responses.create, **sent)
        assert (error.param, error.type) == (param, "invalid_request_error")


# Tools of other kinds


async def test_hosted_tools_are_left_out_and_named(connect: Connect, scripted: Program) -> None:
    ai, tools = connect(scripted), [*HOSTED, *TOOLS]
    raw = await settle(
        ai.responses.with_raw_response.create(**body("call", tools=tools, tool_choice="auto"))
    )
    answer = raw.parse()
    check(answer)
    assert raw.headers["x-ignored-tools"] == "web_search, code_interpreter, mcp, custom"
    assert read(answer) == [OSLO]
    assert as_sent(answer)["tools"][: len(HOSTED)] == HOSTED
    assert answer.usage is not None
    assert answer.usage.input_tokens == await count(ai, "call", tools=TOOLS)
    stream = await settle(
        ai.responses.with_raw_response.create(**body("call", tools=tools, stream=True))
    )
    assert stream.headers["x-ignored-tools"] == raw.headers["x-ignored-tools"]
    parsed = stream.parse()
    found = [event async for event in parsed] if hasattr(parsed, "__aiter__") else list(parsed)
    check_events(found)
    assert read(found[-1].response) == [OSLO]


async def test_nothing_but_hosted_tools_is_none(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await thrice(ai, "call", tools=HOSTED)
    assert (answer.output_text, len(answer.tools)) == (CALL, len(HOSTED))
    raw = await settle(ai.responses.with_raw_response.create(**body("call", tools=TOOLS)))
    assert "x-ignored-tools" not in raw.headers
