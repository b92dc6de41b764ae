"""The events of a response: numbered without a gap, every start with its end, and nothing in the
final object that was not streamed."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.errors import ErrorInfo
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from mlxcel.protocols.responses.errors import CANCELLED, error_body
from tests.protocols.responses.reading import HEAD, frames, responses_read, told, whole

USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=2, reasoning_tokens=1)
END = Finished(USAGE, Timings(queued_ms=1.0, prompt_ms=2.0, decode_ms=3.0))
BEGUN = [Accepted(9), Started(1.0, 2.0)]
CALL = ToolCallDelta(0, "call_" + "0" * 24, "weather", "{}")
DIED = ErrorInfo(code="worker_died", status=503, message="it died")
SPELLED = {
    "reasoning": ("response.reasoning_text", "reasoning_text"),
    "message": ("response.output_text", "output_text"),
}
deltas = st.lists(
    st.one_of(
        st.text(max_size=5).map(TextDelta),
        st.text(min_size=1, max_size=5).map(ReasoningDelta),
    ),
    max_size=8,
)
calls = st.integers(0, 3).map(
    lambda n: [ToolCallDelta(i, f"call_{i:024x}", "weather", f"[{i}]") for i in range(n)]
)
reasons = st.sampled_from(FinishReason)


def answer(*said: Event, reason: FinishReason = FinishReason.EOS) -> list[Event]:
    return [*BEGUN, *said, ChoiceFinished(reason), END]


def kinds(found: Sequence[dict[str, Any]]) -> list[str]:
    return [frame["type"].removeprefix("response.") for frame in found]


def check_items(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as their events tell them; one at a time, each closed before the next."""
    done: list[dict[str, Any]] = []
    current: dict[str, Any] | None = None
    told = ""
    for frame in found:
        name = frame["type"]
        if name == "response.output_item.added":
            assert current is None
            current, told = frame["item"], ""
            assert current["status"] == "in_progress"
        if "output_index" in frame:
            assert frame["output_index"] == len(done)
        if "item_id" in frame:
            assert current is not None
            assert frame["item_id"] == current["id"]
        if name == "response.content_part.added":
            assert current is not None
            current["content"].append(frame["part"])
        if name.endswith("_text.delta"):
            assert current is not None
            current["content"][frame["content_index"]]["text"] += frame["delta"]
        if name.endswith(".delta"):
            told += frame["delta"]
        if name.endswith("_text.done"):
            assert frame["text"] == told
        if name == "response.function_call_arguments.done":
            assert frame["arguments"] == told
        if name == "response.output_item.done":
            assert current is not None
            assert frame["item"]["id"] == current["id"]
            assert text_of(frame["item"]) == told
            assert frame["item"].get("content") == current.get("content")
            done.append(frame["item"])
            current = None
    assert current is None
    return done


def text_of(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    (part,) = item["content"]
    assert part["type"] == SPELLED[item["type"]][1]
    return str(part["text"])


@given(deltas, calls, reasons, st.one_of(st.none(), st.integers(0, 2)))
def test_any_answer(
    said: list[Event], called: list[Event], reason: FinishReason, most: int | None
) -> None:
    read, kept = told(responses_read(stream=True, max_tool_calls=most))
    found = frames(read, answer(*said, *called, reason=reason))
    assert [frame["sequence_number"] for frame in found] == list(range(len(found)))
    assert kinds(found)[:2] == ["created", "in_progress"]
    final = found[-1]["response"]
    assert kinds(found)[-1] == final["status"]
    assert final["output"] == check_items(found)
    texts = [event.text for event in said if isinstance(event, TextDelta)]
    assert final["output_text"] == "".join(texts)
    assert kept == [final]
    keys = found[0]["response"].keys()
    assert all(f["response"].keys() == keys for f in found if "response" in f)
    used = [item for item in final["output"] if item["type"] == "function_call"]
    assert len(used) == (len(called) if most is None else min(most, len(called)))


@given(deltas, calls, reasons)
def test_both_forms_say_the_same(
    said: list[Event], called: list[Event], reason: FinishReason
) -> None:
    events = answer(*said, *called, reason=reason)
    streamed = frames(responses_read(stream=True), events)[-1]["response"]
    once = whole(responses_read(), events)
    apart = {"output"}
    assert {k: v for k, v in streamed.items() if k not in apart} == {
        k: v for k, v in once.items() if k not in apart
    }
    for kind in ("reasoning", "function_call", "message"):
        joined = [
            "".join(text_of(i) for i in body["output"] if i["type"] == kind)
            for body in (streamed, once)
        ]
        assert joined[0] == joined[1]


@pytest.mark.parametrize(
    ("said", "between"),
    [
        pytest.param(
            [TextDelta("a"), TextDelta("b")],
            "output_item.added content_part.added output_text.delta output_text.delta "
            "output_text.done content_part.done output_item.done",
            id="text",
        ),
        pytest.param(
            [ReasoningDelta("h"), TextDelta("a")],
            "output_item.added reasoning_text.delta reasoning_text.done output_item.done "
            "output_item.added content_part.added output_text.delta "
            "output_text.done content_part.done output_item.done",
            id="reasoning-and-text",
        ),
        pytest.param(
            [ReasoningDelta("h")],
            "output_item.added reasoning_text.delta reasoning_text.done output_item.done",
            id="reasoning-only",
        ),
        pytest.param(
            [TextDelta("a"), CALL, CALL],
            "output_item.added content_part.added output_text.delta "
            "output_text.done content_part.done output_item.done "
            + "output_item.added function_call_arguments.delta function_call_arguments.done "
            "output_item.done " * 2,
            id="text-and-two-calls",
        ),
        pytest.param([TextDelta("")], "", id="nothing"),
        pytest.param(
            [CALL],
            "output_item.added function_call_arguments.delta function_call_arguments.done "
            "output_item.done",
            id="call-only",
        ),
    ],
)
def test_events_have_their_order(said: list[Event], between: str) -> None:
    """Row 2 of the contract's list."""
    found = frames(responses_read(stream=True), answer(*said))
    assert kinds(found) == ["created", "in_progress", *between.split(), "completed"]


@given(deltas, st.integers(0, 12), st.sampled_from([DIED.code, CANCELLED]))
def test_a_failure_at_any_event_is_told_last_and_not_kept(
    said: list[Event], place: int, code: str
) -> None:
    read, kept = told(responses_read(stream=True))
    error = ErrorInfo(code=code, status=503, message="why")
    events = [*answer(*said)[:-1][:place], Failed(error), *answer(*said)]
    found = frames(read, events)
    assert [frame["sequence_number"] for frame in found] == list(range(len(found)))
    assert kinds(found)[:2] == ["created", "in_progress"]
    assert kinds(found).count("failed") == 1
    final = found[-1]["response"]
    is_cancelled = code == CANCELLED
    assert final["status"] == ("cancelled" if is_cancelled else "failed")
    assert final["error"] == (None if is_cancelled else {"code": "server_error", "message": "why"})
    assert all(item["status"] != "in_progress" for item in final["output"])
    assert (final["usage"], final["completed_at"], kept) == (None, None, [])


def test_a_transport_that_fails_behind_the_end_says_nothing() -> None:
    read, kept = told(responses_read(stream=True))
    found = frames(read, [*answer(TextDelta("a")), Failed(DIED)])
    assert kinds(found)[-1] == "completed"
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (FinishReason.LENGTH, "incomplete"),
        (FinishReason.CONTEXT, "incomplete"),
        (FinishReason.EOS, "completed"),
        (FinishReason.STOP, "completed"),
        (FinishReason.TOOL_CALLS, "completed"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_limit_leaves_it_incomplete(reason: FinishReason, status: str, stream: bool) -> None:
    events = answer(ReasoningDelta("h"), TextDelta("a"), reason=reason)
    read, kept = told(responses_read(stream=stream))
    body = frames(read, events)[-1]["response"] if stream else whole(read, events)
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    assert (body["status"], body["incomplete_details"]) == (status, details)
    assert body["completed_at"] == (None if details else 1790000002)
    assert [item["status"] for item in body["output"]] == ["completed", status]
    assert kept == [body]


def test_usage_counts_what_was_thought_and_cached() -> None:
    assert whole(responses_read(), answer(TextDelta("a")))["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 14,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorInfo(code="server_busy", status=503, message="m"), "server_overloaded"),
        (
            ErrorInfo(code="context_length_exceeded", status=400, message="m"),
            "context_length_exceeded",
        ),
        (ErrorInfo(code="invalid_request", status=400, message="m"), "invalid_prompt"),
        (DIED, "server_error"),
    ],
)
def test_failures_have_codes(error: ErrorInfo, code: str) -> None:
    found = frames(responses_read(stream=True), [*BEGUN, Failed(error)])
    assert found[-1]["response"]["error"]["code"] == code


def test_frames_name_what_an_sdk_needs() -> None:
    """D2 of the public faults."""
    found = frames(responses_read(stream=True), answer(TextDelta("a"), CALL))
    first = found[0]["response"]
    assert (first["id"], first["created_at"], first["model"]) == (HEAD.id, HEAD.created, "tiny")
    for frame in found:
        name = frame["type"]
        if "item" in name or "part" in name or "delta" in name or name.endswith("s.done"):
            assert "output_index" in frame, name
        if "part" in name or "text" in name:
            assert {"item_id", "content_index"} <= frame.keys(), name
    calls = [f["item"] for f in found if f.get("item", {}).get("type") == "function_call"]
    for item in calls:
        assert {"id", "call_id", "name", "arguments", "status"} <= item.keys()
    assert json.dumps(found)


def test_a_missing_id_has_its_own_type() -> None:
    missing = ErrorInfo(code="not_found", status=404, message="m")
    assert error_body(missing)["error"]["type"] == "not_found"
    assert error_body(DIED)["error"]["type"] == "server_error"
