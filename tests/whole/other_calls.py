"""The calls of an answer in the dialects beside chat, asked for by the body of a chat."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.cases.asking import stream
from tests.cases.named_events import events
from tests.cases.routes import MESSAGES, RESPONSES
from tests.whole.calls import Call, Spoken
from tests.whole.program import Program

Body = dict[str, Any]
CHOICES = {"required": "any"}
REASONS = {"tool_use": "tool_calls", **MESSAGES.reasons}


def by_messages(body: Body) -> Body:
    """As Anthropic's clients ask it."""
    asked = {**body, "tools": [_with_schema(tool["function"]) for tool in body["tools"] or ()]}
    choice = asked.pop("tool_choice", None)
    if isinstance(choice, str):
        asked["tool_choice"] = {"type": CHOICES.get(choice, choice)}
    elif choice is not None:
        asked["tool_choice"] = {"type": "tool", "name": choice["function"]["name"]}
    return asked


def _with_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "input_schema": function["parameters"]}


def by_responses(body: Body) -> Body:
    """As OpenAI's newer clients ask it."""
    asked = {**body, "input": body["messages"]}
    asked["tools"] = [{"type": "function", **tool["function"]} for tool in body["tools"] or ()]
    asked["max_output_tokens"] = asked.pop("max_tokens")
    choice = asked.get("tool_choice")
    if isinstance(choice, dict):
        asked["tool_choice"] = {"type": "function", "name": choice["function"]["name"]}
    return asked


def message(program: Program, body: Body) -> Spoken:
    status, answer = program.post(MESSAGES.path, by_messages(body))
    assert status == 200, answer
    return _of_blocks(answer["content"], answer["stop_reason"])


def message_stream(program: Program, body: Body) -> Spoken:
    """Put together as clients do: by `index`, the input out of its pieces."""
    told = events(stream(program, by_messages(body), path=MESSAGES.path))
    blocks: list[dict[str, Any]] = []
    for event in told:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append({**event["content_block"], "joined": ""})
            case "content_block_delta":
                delta = event["delta"]
                blocks[event["index"]]["joined"] += delta.get("text", "") + delta.get(
                    "partial_json", ""
                )
    for block in blocks:
        joined = block.pop("joined")
        if block["type"] == "text":
            block["text"] = joined
        else:
            block["input"] = json.loads(joined)
    return _of_blocks(blocks, told[-2]["delta"]["stop_reason"])


def _of_blocks(blocks: Sequence[Mapping[str, Any]], reason: str) -> Spoken:
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    _check_ids([call["id"] for call in calls], "toolu")
    return Spoken(
        content="".join(texts) or (None if calls else ""),
        calls=tuple((call["name"], json.dumps(call["input"])) for call in calls),
        reason=REASONS[reason],
    )


def response(program: Program, body: Body) -> Spoken:
    status, answer = program.post(RESPONSES.path, by_responses(body))
    assert status == 200, answer
    return _of_items(answer)


def response_stream(program: Program, body: Body) -> Spoken:
    """The last event, and what came before it is the same."""
    told = events(stream(program, by_responses(body), path=RESPONSES.path))
    last = told[-1]["response"]
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert done == last["output"]
    pieces = [e["delta"] for e in told if e["type"] == "response.output_text.delta"]
    assert "".join(pieces) == last["output_text"]
    return _of_items(last)


def _of_items(answer: Mapping[str, Any]) -> Spoken:
    """There is no word for the end by calls: a response with some is complete."""
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    _check_ids([call["call_id"] for call in calls], "call")
    assert {call["status"] for call in calls} <= {"completed"}
    is_cut = answer["status"] == "incomplete"
    assert is_cut or answer["status"] == "completed"
    reason = "length" if is_cut else "stop"
    return Spoken(
        content=answer["output_text"] or (None if calls else ""),
        calls=tuple((call["name"], call["arguments"]) for call in calls),
        reason="tool_calls" if calls else reason,
    )


def _check_ids(ids: Sequence[str], prefix: str) -> None:
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(f"{prefix}_[0-9a-f]{{16}}", one) for one in ids)


Reader = Callable[[Program, Body], Spoken]
OTHERS: tuple[Reader, ...] = (message, message_stream, response, response_stream)


def parsed(spoken: Spoken) -> tuple[str | None, list[tuple[str, Any]], str]:
    """Messages sends objects, the others the text of one."""
    return spoken.content, [_parsed(call) for call in spoken.calls], spoken.reason


def _parsed(call: Call) -> tuple[str, Any]:
    name, arguments = call
    return name, json.loads(arguments)
