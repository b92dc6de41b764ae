"""Tools and thinking through Anthropic's official client."""

import json
from typing import Any

import anthropic
import pytest
from anthropic import beta_async_tool, beta_tool

from tests.whole.program import Program
from tests.whole.scenarios.asking import settle
from tests.whole.scenarios.claude import (
    Reach,
    body,
    both,
    message,
    raw_events,
    reach,
    refused,
    streaming,
    text_of,
)

__all__ = ["reach"]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: list[Any] = [
    {"name": "weather", "description": "Weather of a city.", "input_schema": CITY},
    {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
]
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
OSLO: tuple[str, Any] = ("weather", {"city": "Oslo"})
NOW: tuple[str, Any] = ("clock", {})


def calls(answer: Any) -> list[tuple[str, Any]]:
    """Names and inputs; their ids are of Anthropic's kind, and no two are the same."""
    found = [block for block in answer.content if block.type == "tool_use"]
    assert len({block.id for block in found}) == len(found)
    for block in found:
        assert int(block.id.removeprefix("toolu_"), 16) >= 0
        assert len(block.id) == len("toolu_") + 16
    return [(block.name, block.input) for block in found]


@pytest.mark.parametrize(
    ("text", "kinds", "expected"),
    [
        pytest.param("call", ["tool_use"], [OSLO], id="one"),
        pytest.param("call two", ["tool_use", "tool_use"], [OSLO, NOW], id="parallel"),
        pytest.param("say and call", ["text", "tool_use"], [OSLO], id="beside-text"),
    ],
)
async def test_a_call_of_the_models_own(
    reach: Reach, scripted: Program, text: str, kinds: list[str], expected: Any
) -> None:
    answer = await both(reach(scripted), text, tools=TOOLS, tool_choice={"type": "auto"})
    assert [block.type for block in answer.content] == kinds
    assert (calls(answer), answer.stop_reason) == (expected, "tool_use")


async def test_no_call_is_read_where_none_is_wanted(reach: Reach, scripted: Program) -> None:
    for fields in ({"tools": TOOLS, "tool_choice": {"type": "none"}}, {}):
        answer = await both(reach(scripted), "call", **fields)
        assert [block.type for block in answer.content] == ["text"]
        assert answer.stop_reason == "end_turn"


async def test_a_call_is_streamed_as_a_block(reach: Reach, scripted: Program) -> None:
    found = await raw_events(reach(scripted), "say and call", tools=TOOLS)
    starts = [event for event in found if event.type == "content_block_start"]
    assert [(event.index, event.content_block.type) for event in starts] == [
        (0, "text"),
        (1, "tool_use"),
    ]
    assert starts[1].content_block.input == {}
    deltas = [event.delta for event in found if event.type == "content_block_delta"]
    assert not any("tool_call" in delta.text for delta in deltas if delta.type == "text_delta")
    pieces = [delta.partial_json for delta in deltas if delta.type == "input_json_delta"]
    assert [json.loads(piece) for piece in pieces] == [{"city": "Oslo"}]


async def test_three_turns_of_an_agent(reach: Reach, scripted: Program) -> None:
    """Calls, their results, and what the model says of them, with the client's own objects."""
    ai = reach(scripted)
    turns: list[Any] = body("call two")["messages"]
    first = await message(ai, messages=turns, tools=TOOLS)
    turns += [{"role": "assistant", "content": first.content}, _results(first)]
    turns.append({"role": "user", "content": "call"})
    second = await message(ai, messages=turns, tools=TOOLS)
    assert calls(second) == [OSLO]
    turns += [{"role": "assistant", "content": second.to_dict()["content"]}, _results(second)]
    turns[-1]["content"].append({"type": "text", "text": "and so"})
    async with streaming(ai, messages=turns, tools=TOOLS) as helper:
        third = await settle(helper.get_final_message())
    assert (text_of(third), third.stop_reason) == ("It rains in Oslo.", "end_turn")


def _results(answer: Any) -> dict[str, Any]:
    found = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "5"}]}
        for block in answer.content
        if block.type == "tool_use"
    ]
    return {"role": "user", "content": found}


async def test_a_result_stands_behind_its_call(reach: Reach, scripted: Program) -> None:
    """As a string and as blocks, the prompt is the same."""
    ai, counts = reach(scripted), []
    use = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}
    for content in ("noon", [{"type": "text", "text": "noon"}]):
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
        turns = [
            *body("when?")["messages"],
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
        sent: Any = {"model": "any", "messages": turns, "tools": TOOLS}
        counts.append((await settle(ai.messages.count_tokens(**sent))).input_tokens)
    assert counts[0] == counts[1]


async def test_tools_of_anthropics_own_are_named(reach: Reach, scripted: Program) -> None:
    raw = reach(scripted).messages.with_raw_response
    reply = await settle(raw.create(**body("call", tools=[SEARCH, *TOOLS])))
    assert reply.headers["x-ignored-tools"] == "web_search_20250305"
    assert calls(await settle(reply.parse())) == [OSLO]
    reply = await settle(raw.create(**body("call", tools=TOOLS)))
    assert "x-ignored-tools" not in reply.headers


async def test_the_runner_of_the_sdk_calls_a_function(reach: Reach, scripted: Program) -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: Its name.
        """
        asked.append(city)
        return "rain"

    async def later(city: str) -> str:
        return weather(city)

    later.__doc__, ai = weather.__doc__, reach(scripted)
    is_async = isinstance(ai, anthropic.AsyncAnthropic)
    tool: Any = beta_async_tool(later, name="weather") if is_async else beta_tool(weather)
    runner: Any = ai.beta.messages.tool_runner(**body("call"), tools=[tool], max_iterations=2)
    answers = [answer async for answer in runner] if is_async else list(runner)
    assert asked[:1] == ["Oslo"]
    assert answers[0].stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        pytest.param({"type": "any"}, {"weather", "clock"}, id="any"),
        pytest.param({"type": "tool", "name": "clock"}, {"clock"}, id="tool"),
    ],
)
async def test_a_forced_call(
    reach: Reach, thinker: Program, choice: dict[str, Any], names: set[str]
) -> None:
    """A random model says nothing but what the grammar lets it."""
    city = {"type": "string", "enum": ["Oslo", "Rome"]}
    small = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    tools = [
        {"name": "weather", "input_schema": small | {"additionalProperties": False}},
        {"name": "clock", "input_schema": NOTHING},
    ]
    fields: Any = {"tools": tools, "tool_choice": choice, "max_tokens": 300}
    fields["thinking"] = {"type": "disabled", "budget_tokens": 0}
    answer = await message(reach(thinker), **fields)
    found = calls(answer)
    assert found
    assert {name for name, _ in found} <= names
    assert answer.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param({"tool_choice": {"type": "tool", "name": "no"}}, "tool_choice.name", id="no"),
        pytest.param({"tools": TOOLS * 65}, "tools", id="130-tools"),
        pytest.param({"tools": [{"name": 5}]}, "tools[0].name", id="name"),
    ],
)
async def test_a_wrong_tool_is_a_bad_request(
    reach: Reach, scripted: Program, fields: dict[str, Any], named: str
) -> None:
    sent = body(**{"tools": TOOLS} | fields)
    error = await refused(anthropic.BadRequestError, reach(scripted).messages.create, **sent)
    assert named in error.body["error"]["message"]


# Thinking


ENABLED = {"type": "enabled", "budget_tokens": 6}


async def test_thinking_is_shown_where_it_is_asked_for(reach: Reach, thinker: Program) -> None:
    fields: Any = {"max_tokens": 20, "temperature": 0.0}
    answer = await both(reach(thinker), thinking=ENABLED, **fields)
    assert answer.content[0].type == "thinking"
    assert answer.content[0].signature == ""
    assert answer.content[0].thinking
    assert not {block.type for block in answer.content[1:]} - {"text"}


async def test_thinking_is_hidden_else(reach: Reach, thinker: Program) -> None:
    fields: Any = {"max_tokens": 20, "temperature": 0.0}
    ai = reach(thinker)
    shown = await message(ai, thinking=ENABLED, **fields)
    for kind in ({"type": "disabled", "budget_tokens": 6}, {"budget_tokens": 6}):
        answer = await message(ai, thinking=kind, **fields)
        assert {block.type for block in answer.content} == {"text"}
        assert text_of(answer) == text_of(shown)
        assert answer.usage.output_tokens == shown.usage.output_tokens


async def test_events_of_thinking(reach: Reach, thinker: Program) -> None:
    ai = reach(thinker)
    found = await raw_events(ai, thinking=ENABLED, max_tokens=20, temperature=0.0)
    deltas = [event for event in found if event.type == "content_block_delta"]
    kinds = [event.delta.type for event in deltas if event.index == 0]
    assert kinds[0] == "thinking_delta"
    assert kinds[-1] == "signature_delta"
    assert set(kinds[:-1]) == {"thinking_delta"}
    assert {event.delta.type for event in deltas if event.index == 1} <= {"text_delta"}


async def test_thoughts_go_back(reach: Reach, thinker: Program) -> None:
    """With all the blocks, as the SDK asks of its users."""
    ai = reach(thinker)
    fields: Any = {"max_tokens": 20, "temperature": 0.0, "thinking": ENABLED}
    first = await message(ai, **fields)
    turns: list[Any] = [
        *body("hello")["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "and?"},
    ]
    second = await message(ai, messages=turns, **fields)
    assert second.usage.input_tokens > 0
