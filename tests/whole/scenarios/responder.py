"""Responses through the official client, in each of the forms it knows: in one piece, as events,
and by its helper for streams.

Knows the SDK's own types, the order of events, and which keys of ours stand beside OpenAI's.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from openai import AsyncOpenAI, omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent

from tests.whole.scenarios.asking import Ai, listed, opened, settle

OURS = {"output_text", "frequency_penalty", "presence_penalty", "store"}
"""Keys that OpenAI's type does not name."""
ALWAYS = OURS | {
    *("id", "object", "created_at", "completed_at", "status", "error", "incomplete_details"),
    *("model", "output", "usage", "background", "conversation", "instructions"),
    *("max_output_tokens", "max_tool_calls", "metadata", "parallel_tool_calls"),
    *("previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier"),
    *("service_tier", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"),
    *("truncation", "user"),
}
"""No key is left out, whatever it says."""
ENDS = {"completed", "incomplete", "failed"}
ID = re.compile(r"resp_[0-9a-f]{32}")
ITEM_IDS = {
    "message": re.compile(r"msg_[0-9a-f]{16}"),
    "function_call": re.compile(r"fc_[0-9a-f]{16}"),
    "reasoning": re.compile(r"rs_[0-9a-f]{16}"),
}
CALL_ID = re.compile(r"call_[0-9a-f]{16}")
STEPS = {
    "message": re.compile(
        r"content_part\.added (output_text\.delta )+output_text\.done content_part\.done "
    ),
    "function_call": re.compile(
        r"(function_call_arguments\.delta )+function_call_arguments\.done "
    ),
    "reasoning": re.compile(
        r"(reasoning_text\.delta )+reasoning_text\.done "
        r"|reasoning_summary_part\.added (reasoning_text\.delta reasoning_summary_text\.delta )+"
        r"reasoning_text\.done reasoning_summary_text\.done reasoning_summary_part\.done "
    ),
}
"""What an item goes through between its `added` and its `done`."""
NAMES = {
    "message": "output_text",
    "function_call": "function_call_arguments",
    "reasoning": "reasoning_text",
}
SUMMARY = "reasoning_summary_text"
TYPED = frozenset(get_args(get_args(ResponseStreamEvent)[0]))
CITY: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 5}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CLOCK: dict[str, Any] = {
    "type": "function",
    "name": "clock",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [CITY, CLOCK]
PLAIN_OFF = ("id", "created_at", "completed_at", "output_text")


def body(said: Any = "hello", /, **fields: Any) -> dict[str, Any]:
    return {"model": "any", "input": said} | fields


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content} | more


def result(call: Any, output: Any) -> dict[str, Any]:
    """What the tool of a call has to say."""
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


async def respond(ai: Ai, said: Any = "hello", /, **fields: Any) -> Response:
    """In one piece; its shape is right."""
    answer = await settle(ai.responses.create(**body(said, **fields)))
    assert isinstance(answer, Response)
    check(answer)
    return answer


async def events(ai: Ai, said: Any = "hello", /, **fields: Any) -> list[Any]:
    """Of `create(stream=True)`, to the end; each, and their order, are right."""
    stream = await settle(ai.responses.create(**body(said, **fields), stream=True))
    found = await listed(stream)
    check_events(found)
    return found


async def helped(ai: Ai, said: Any = "hello", /, **fields: Any) -> tuple[list[Any], Response]:
    """What the `.stream()` helper tells, and the response it comes to."""
    async with opened(ai.responses.stream(**body(said, **fields))) as helper:
        is_async = isinstance(ai, AsyncOpenAI)
        told = [event async for event in helper] if is_async else list(helper)
        assert all(_is_typed(event) for event in told)
        last = told[-1]
        if last.type != "response.completed":
            return told, last.response
        final = await settle(helper.get_final_response())
        assert final is last.response or final == last.response
        return told, final


async def thrice(ai: Ai, said: Any = "hello", /, **fields: Any) -> Response:
    """The same response in all three forms."""
    whole = await respond(ai, said, **fields)
    pieces = (await events(ai, said, **fields))[-1].response
    _, final = await helped(ai, said, **fields)
    assert plain(whole) == plain(pieces) == plain(final)
    return whole


async def count(ai: Ai, said: Any = "hello", /, **fields: Any) -> int:
    counted = await settle(ai.responses.input_tokens.count(**body(said, **fields)))
    assert counted.object == "response.input_tokens"
    return int(counted.input_tokens)


def check(answer: Response) -> None:
    """Every key is there; no value needs coercion; what stands twice is the same."""
    sent = as_sent(answer)
    # The contract has the bare id here, where OpenAI's type has an object around it.
    Response.model_validate(sent | {"conversation": None}, strict=True)
    assert set(sent) >= ALWAYS, ALWAYS - set(sent)
    assert set(sent) <= set(Response.model_fields) | OURS
    assert ID.fullmatch(answer.id)
    assert sent["output_text"] == answer.output_text
    assert (answer.completed_at is not None) == (answer.status == "completed")
    assert (answer.incomplete_details is not None) == (answer.status == "incomplete")
    assert (answer.usage is None) == (answer.status not in ("completed", "incomplete"))
    if answer.usage is not None:
        used = answer.usage
        assert used.total_tokens == used.input_tokens + used.output_tokens
        assert used.output_tokens_details.reasoning_tokens <= used.output_tokens
        assert used.input_tokens_details.cached_tokens < used.input_tokens
    _check_items(answer.output)


def check_events(found: Sequence[Any]) -> None:
    """Typed and whole, numbered without a gap; what they tell is what the last one has."""
    for number, event in enumerate(found):
        assert _is_typed(event), event
        type(event).model_validate(_strict(event), strict=True)
        assert event.sequence_number == number
    for kind, event in zip(("created", "in_progress"), found, strict=False):
        assert event.type == f"response.{kind}"
        assert (event.response.status, event.response.output) == ("in_progress", [])
        check(event.response)
    final = found[-1].response
    assert found[-1].type == f"response.{final.status}"
    assert final.status in ENDS
    assert {e.response.id for e in (*found[:2], found[-1])} == {final.id}
    told = [_told(at, item) for at, item in enumerate(_by_item(found[2:-1]))]
    if final.status == "failed":
        # What was open when it broke has no end of its own.
        done = [each for each in told if each is not None]
        assert done == as_sent(final)["output"][: len(done)]
    else:
        check(final)
        assert told == as_sent(final)["output"]
    _check_accumulated(found, final)


def plain(answer: Response) -> dict[str, Any]:
    """Without ids and times, and without what the prompt cache had; calls come before words."""
    sent = {key: value for key, value in as_sent(answer).items() if key not in PLAIN_OFF}
    if sent["usage"] is not None:
        sent["usage"] = sent["usage"] | {"input_tokens_details": None}
    items = [
        {key: value for key, value in item.items() if key not in ("id", "call_id")}
        for item in sent["output"]
    ]
    return sent | {"output": sorted(items, key=lambda item: str(item["type"]))}


def as_sent(answer: Response) -> dict[str, Any]:
    """Without what the helpers put in themselves."""
    sent: dict[str, Any] = answer.to_dict(warnings=False)
    for item in sent["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return sent


def calls_of(answer: Response) -> list[Any]:
    return [item for item in answer.output if item.type == "function_call"]


def thoughts_of(answer: Response) -> str:
    items = (item for item in answer.output if item.type == "reasoning")
    return "".join(part.text for item in items for part in item.content or ())


def kinds_of(answer: Response) -> list[str]:
    return [item.type for item in answer.output]


def deltas(found: Sequence[Any], kind: str = "output_text") -> str:
    return "".join(event.delta for event in found if event.type == f"response.{kind}.delta")


def _is_typed(event: Any) -> bool:
    """Made by the class of its `type`, not by the first that would take it."""
    names = get_args(type(event).model_fields["type"].annotation)
    return names == (event.type,) and any(isinstance(event, kind) for kind in TYPED)


def _strict(event: Any) -> dict[str, Any]:
    sent: dict[str, Any] = event.to_dict(warnings=False)
    if "response" in sent:
        sent["response"] = sent["response"] | {"conversation": None}
    return sent


def _by_item(found: Sequence[Any]) -> Iterator[list[Any]]:
    """The events of one item after those of the other: they never mix."""
    item: list[Any] = []
    for event in found:
        if event.type == "response.output_item.added" and item:
            yield item
            item = []
        item.append(event)
    if item:
        yield item


def _told(at: int, found: list[Any]) -> dict[str, Any] | None:
    """The item its events tell of, once it is done."""
    added, last = found[0], found[-1]
    assert added.type == "response.output_item.added"
    assert added.item.status == "in_progress"
    assert {event.output_index for event in found} == {at}
    steps = found[1:-1] if last.type == "response.output_item.done" else found[1:]
    assert {event.item_id for event in steps} <= {added.item.id}
    assert {getattr(event, "content_index", 0) for event in steps} <= {0}
    if last.type != "response.output_item.done":
        return None
    kind = added.item.type
    told = "".join(f"{event.type.removeprefix('response.')} " for event in steps)
    assert STEPS[kind].fullmatch(told), told
    item: dict[str, Any] = last.item.to_dict()
    assert (item["id"], item["type"]) == (added.item.id, kind)
    said = deltas(steps, NAMES[kind])
    if kind == "function_call":
        assert said == item["arguments"] == steps[-1].arguments
        assert (added.item.call_id, added.item.name) == (item["call_id"], item["name"])
        assert added.item.arguments == ""
    else:
        assert [part["text"] for part in item["content"]] == [said]
        assert next(event.text for event in steps if event.type.endswith("_text.done")) == said
    if kind == "reasoning":
        summed = deltas(steps, SUMMARY)
        assert item["summary"] == ([{"type": "summary_text", "text": said}] if summed else [])
        assert summed in ("", said)
    if kind == "message":
        assert added.item.content == []
        assert steps[0].part.text == ""
        assert [steps[-1].part.to_dict()] == item["content"]
    return item


def _check_accumulated(found: Sequence[Any], final: Response) -> None:
    """What the SDK puts together from deltas is what the last event has."""
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in found:
        state.handle_event(event)
    # This one adds nothing.
    snapshot = state.accumulate_event(found[1])
    assert [item.id for item in snapshot.output] == [item.id for item in final.output]
    for mine, theirs in zip(final.output, snapshot.output, strict=True):
        if mine.type == "message":
            assert [part.to_dict() for part in theirs.content] == [
                part.to_dict() for part in mine.content
            ]
        elif mine.type == "function_call":
            assert (theirs.name, theirs.arguments) == (mine.name, mine.arguments)


def _check_items(items: Sequence[Any]) -> None:
    assert len({item.id for item in items}) == len(items)
    for item in items:
        assert ITEM_IDS[item.type].fullmatch(item.id)
        assert item.status in ("completed", "incomplete")
    calls = [item.call_id for item in items if item.type == "function_call"]
    assert all(CALL_ID.fullmatch(call) for call in calls)
    assert len(set(calls)) == len(calls)
