"""Public faults, family D: what the AI SDK and others need of /v1/responses."""

import json
from typing import Any

import pytest

from tests.cases.asking import Chunk, stream
from tests.cases.named_events import events
from tests.cases.routes import RESPONSES
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PATH = RESPONSES.path
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"const": "Oslo"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "f", "parameters": PARAMETERS}
FORCED = {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}
KEYS = {
    "response.created": {"response"},
    "response.in_progress": {"response"},
    "response.output_item.added": {"output_index", "item"},
    "response.output_item.done": {"output_index", "item"},
    "response.content_part.added": {"item_id", "output_index", "content_index", "part"},
    "response.content_part.done": {"item_id", "output_index", "content_index", "part"},
    "response.output_text.delta": {"item_id", "output_index", "content_index", "delta"},
    "response.output_text.done": {"item_id", "output_index", "content_index", "text"},
    "response.function_call_arguments.delta": {"item_id", "output_index", "delta"},
    "response.function_call_arguments.done": {"item_id", "output_index", "arguments"},
    "response.completed": {"response"},
    "response.incomplete": {"response"},
}
RESPONSE = {
    *("id", "object", "created_at", "completed_at", "status", "error", "incomplete_details"),
    *("model", "output", "output_text", "usage", "instructions", "tools", "tool_choice", "text"),
    *("reasoning", "metadata", "temperature", "top_p", "parallel_tool_calls", "truncation"),
    *("max_output_tokens", "max_tool_calls", "top_logprobs", "previous_response_id", "store"),
    *("conversation", "prompt_cache_key", "service_tier", "user", "background"),
}


def told(program: Program, **fields: Any) -> list[Chunk]:
    body = RESPONSES.body("hi", max_tokens=120, **fields)
    return events(stream(program, body, path=PATH))


@pytest.mark.parametrize("fields", [{}, FORCED], ids=["text", "call"])
def test_d2_every_event_has_its_keys(long_tiny: Program, fields: dict[str, Any]) -> None:
    """D2: no `output_index`, no `id` on call items, no `created_at` or `model`; the AI SDK
    dropped the events.

    https://github.com/ggml-org/llama.cpp/issues/20607
    """
    found = told(long_tiny, **fields)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    for event in found:
        assert set(event) >= KEYS[event["type"]] | {"type", "sequence_number"}
    first, last = found[0]["response"], found[-1]["response"]
    assert set(first) == set(last) >= RESPONSE
    assert {name: first[name] for name in ("id", "object", "created_at", "model")} == {
        name: last[name] for name in ("id", "object", "created_at", "model")
    }
    assert isinstance(first["created_at"], int)


def test_d2_a_call_item_is_whole(long_tiny: Program) -> None:
    """D2: from its first event on, with ids that stay."""
    found = told(long_tiny, **FORCED)
    added, delta, done, ended = (event for event in found if "output_index" in event)
    item = added["item"]
    assert set(item) >= {"id", "type", "call_id", "name", "arguments", "status"}
    assert (item["type"], item["name"], item["status"]) == ("function_call", "f", "in_progress")
    assert item["arguments"] == ""
    assert json.loads(delta["delta"]) == {"city": "Oslo"}
    assert delta["delta"] == done["arguments"] == ended["item"]["arguments"]
    assert delta["item_id"] == done["item_id"] == item["id"]
    whole = item | {"arguments": done["arguments"], "status": "completed"}
    assert ended["item"] == whole
    assert found[-1]["response"]["output"] == [whole]
    assert [event["output_index"] for event in (added, delta, done, ended)] == [0] * 4


def test_d2_a_call_in_one_piece_is_the_same(long_tiny: Program) -> None:
    """D2: C1's kind: with the same keys as in a stream."""
    status, answer = long_tiny.post(PATH, RESPONSES.body("hi", max_tokens=120, **FORCED))
    assert (status, answer["status"]) == (200, "completed")
    (item,) = answer["output"]
    streamed = told(long_tiny, **FORCED)[-1]["response"]["output"][0]
    own = {"id", "call_id"}
    assert {k: v for k, v in item.items() if k not in own} == {
        k: v for k, v in streamed.items() if k not in own
    }
    assert set(item) == set(streamed)


USER = {"type": "message", "role": "user", "content": "q"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
EMPTY = {"type": "reasoning", "summary": []}


def output(value: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "c", "output": value}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{"type": "input_text", "text": "7"}], id="the-case"),
        pytest.param([{"type": "output_text", "text": "7", "annotations": []}], id="sent-back"),
        pytest.param([{"type": "text", "text": "7"}], id="of-chat"),
    ],
)
def test_d4_tool_output_as_parts(long_tiny: Program, value: Any) -> None:
    """D4: an output given as a list was refused.

    https://github.com/ggml-org/llama.cpp/issues/23465
    """
    plain, parts = (
        [USER, CALL, output(given), *more] for given, more in (("7", ()), (value, (EMPTY,)))
    )
    counts = []
    for items in (plain, parts):
        body = {"model": "any", "input": items, "max_output_tokens": 1}
        status, answer = long_tiny.post(PATH, body)
        assert status == 200, answer
        counts.append(answer["usage"]["input_tokens"])
        counted = long_tiny.post(f"{PATH}/input_tokens", body)[1]["input_tokens"]
        assert counted == counts[-1]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "thought",
    [
        pytest.param(EMPTY, id="empty"),
        pytest.param(EMPTY | {"content": None, "encrypted_content": None}, id="nulls"),
        pytest.param(EMPTY | {"summary": [{"type": "summary_text", "text": "s"}]}, id="summary"),
        pytest.param(
            EMPTY | {"encrypted_content": "gAAAAABo", "id": "rs_1"}, id="sealed-elsewhere"
        ),
        pytest.param(EMPTY | {"content": [{"type": "reasoning_text", "text": ""}]}, id="blank"),
    ],
)
def test_d4_thoughts_of_others_cost_nothing(long_tiny: Program, thought: Any) -> None:
    """D4's kind: reasoning that cannot be read here changes nothing of the prompt, wherever it
    stands: not even between words and the call that belongs to them."""
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    plain: list[Any] = [USER, said, CALL, output("7")]
    counts = []
    for place in (None, 0, 1, 2, 3, 4):
        items = plain if place is None else [*plain[:place], thought, *plain[place:]]
        status, answer = long_tiny.post(f"{PATH}/input_tokens", {"input": items})
        assert status == 200, answer
        counts.append(answer["input_tokens"])
    assert counts == [counts[0]] * 6
