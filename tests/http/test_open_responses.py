"""The HTTP cases of Open Responses: what its compliance runner sends, and what it looks for."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from tests.http.site import HELLO, TIMINGS, USAGE, Scripted, Site
from tests.open_responses import COMPACTION, RESPONSE, event_faults, faults

pytestmark = pytest.mark.asyncio

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "City and state"}},
        "required": ["location"],
    },
}
CALL = ToolCallDelta(
    index=0, call_id="call_0123456789abcdef", name="get_weather", arguments='{"location":"Oslo"}'
)
CALLING: Sequence[Event] = (
    Accepted(3),
    CALL,
    ChoiceFinished(FinishReason.TOOL_CALLS),
    Finished(usage=USAGE, timings=TIMINGS),
)
THINKING: Sequence[Event] = (Accepted(3), ReasoningDelta("Hm."), TextDelta("Hello"), *HELLO[-2:])
PIXEL = "data:image/png;base64,iVBORw0KGgo="
BASIC = [{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}]
SYSTEM = [
    {"type": "message", "role": "system", "content": "Talk like a pirate."},
    {"type": "message", "role": "user", "content": "Say hello."},
]
TURNS = [
    {"type": "message", "role": "user", "content": "My name is Alice."},
    {"type": "message", "role": "assistant", "content": "Hello Alice!"},
    {"type": "message", "role": "user", "content": "What is my name?"},
]
PHASES = [TURNS[0], TURNS[1] | {"phase": "commentary", "id": None, "status": None}, TURNS[2]]
WORDS = (
    *("response.created", "response.in_progress", "response.output_item.added"),
    *("response.content_part.added", "response.output_text.delta", "response.output_text.delta"),
    *("response.output_text.done", "response.content_part.done", "response.output_item.done"),
    "response.completed",
)
CALLS = (
    *WORDS[:3],
    *("response.function_call_arguments.delta", "response.function_call_arguments.done"),
    *WORDS[-2:],
)


async def answered(site: Site, **fields: Any) -> dict[str, Any]:
    """As the runner asks: without `/v1` as well, and with `stream` always said."""
    body = {"model": "tiny", "stream": False} | fields
    reply = await site.http.post("/responses", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    assert not faults(RESPONSE, found)
    assert found["status"] == "completed"
    assert found["output"]
    return found


async def streamed(site: Site, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "tiny", "stream": True} | fields
    reply = await site.http.post("/responses", json=body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = []
    for frame in reply.text.strip().split("\n\n"):
        name, _, data = frame.removeprefix("event: ").partition("\ndata: ")
        events.append(json.loads(data))
        assert events[-1]["type"] == name
        assert not event_faults(events[-1])
    assert events[-1]["response"]["status"] == "completed"
    return events


@pytest.mark.parametrize("turns", [BASIC, SYSTEM, TURNS, PHASES])
async def test_text(site: Site, turns: list[Any]) -> None:
    found = await answered(site, input=turns)
    assert found["output"][0]["content"][0]["text"] == "Hello"
    told = [(message.role, message.text) for message in site.generator.requests[-1].chat.messages]
    assert told == [(turn["role"], turn["content"]) for turn in turns]


async def test_stream(site: Site) -> None:
    events = await streamed(site, input=BASIC)
    assert tuple(event["type"] for event in events) == WORDS


async def test_tool_call(site: Site, generator: Scripted) -> None:
    generator.script = list(CALLING)
    found = await answered(site, input=BASIC, tools=[WEATHER])
    (call,) = found["output"]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    assert json.loads(call["arguments"]) == {"location": "Oslo"}


async def test_streamed_tool_call(site: Site, generator: Scripted) -> None:
    generator.script = list(CALLING)
    events = await streamed(site, input=BASIC, tools=[WEATHER])
    assert tuple(event["type"] for event in events) == CALLS
    assert events[2]["item"]["type"] == events[5]["item"]["type"] == "function_call"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_image_is_told_to_be_too_much(site: Site, stream: bool) -> None:
    """The runner's case for models that see: this one reads text."""
    parts = [{"type": "input_text", "text": "What is this?"}]
    parts += [{"type": "input_image", "image_url": PIXEL}]
    turns = [{"type": "message", "role": "user", "content": parts}]
    body = {"model": "tiny", "input": turns, "stream": stream}
    reply = await site.http.post("/responses", json=body)
    assert reply.status_code == 501
    error = reply.json()["error"]
    assert (error["type"], error["param"]) == ("not_supported_error", "input[0].content[1]")


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_and_their_summary(site: Site, generator: Scripted, stream: bool) -> None:
    generator.script = list(THINKING)
    asked: dict[str, Any] = {"input": BASIC, "reasoning": {"effort": "low", "summary": "auto"}}
    if stream:
        found = (await streamed(site, **asked))[-1]["response"]
    else:
        found = await answered(site, **asked)
    thought = found["output"][0]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]


async def test_compaction(site: Site) -> None:
    reply = await site.http.post("/responses/compact", json={"model": "tiny", "input": TURNS})
    assert reply.status_code == 200, reply.text
    assert not faults(COMPACTION, reply.json())
    (item,) = reply.json()["output"]
    await answered(site, input=[item, *BASIC])
    told = site.generator.requests[-1].chat.messages
    assert [message.role for message in told] == ["system", "user"]
    assert told[0].text.endswith("Hello")


async def test_the_last_answer_is_gone_on_from(site: Site) -> None:
    first = await answered(site, input=BASIC)
    found = await answered(site, input="And now?", previous_response_id=first["id"])
    assert found["previous_response_id"] == first["id"]
    told = [message.role for message in site.generator.requests[-1].chat.messages]
    assert told == ["user", "assistant", "user"]


async def test_items_can_be_named(site: Site) -> None:
    """The type of a reference may be null."""
    first = await answered(site, input=BASIC)
    name = first["output"][0]["id"]
    for reference in ({"id": name}, {"type": None, "id": name}):
        await answered(site, input=[*BASIC, reference, TURNS[2]])
        told = site.generator.requests[-1].chat.messages
        assert [message.role for message in told] == ["user", "assistant", "user"]
