"""A stream of chunks, frame by frame, and against the body of the same events."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
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
    Likely,
    ReasoningDelta,
    TextDelta,
    Timings,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
)
from mlxcel.generation.collect import collect
from mlxcel.protocols.base import Head
from mlxcel.protocols.openai import chat
from tests.protocols.openai.reading import chat_read
from tests.protocols.samples import RULES

HEAD = Head(id="chatcmpl-0", created=1790000000, model="tiny")
FINISHED = Finished(
    Usage(prompt_tokens=9, completion_tokens=4),
    Timings(queued_ms=1.0, prompt_ms=10.0, decode_ms=20.0, total_ms=40.0),
)
A, B = (TokenLogprobs(Likely(t, -0.5, t.encode()), ()) for t in "ab")


def frames(read: chat.ChatRead, events: Iterable[Event]) -> list[Any]:
    encoder = read.encoder(HEAD)
    return [frame.data for event in events for frame in encoder.encode(event)]


def body(read: chat.ChatRead, events: Iterable[Event]) -> dict[str, Any]:
    async def replayed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return read.answer(HEAD, asyncio.run(collect(replayed())))


def choices(found: Iterable[Any]) -> list[dict[str, Any]]:
    return [frame["choices"][0] for frame in found if frame != "[DONE]"]


@pytest.mark.parametrize("n", [1, 3, 8])
def test_every_choice_has_an_opening_chunk_with_nothing_but_the_role(n: int) -> None:
    found = choices(frames(chat_read(n=n), [Accepted(9)]))
    assert [choice["index"] for choice in found] == list(range(n))
    assert all(choice["delta"] == {"role": "assistant"} for choice in found)
    assert all(choice["finish_reason"] is choice["logprobs"] is None for choice in found)


def test_only_the_choice_that_ends_last_carries_timings_and_waits_for_them() -> None:
    encoder = chat_read(n=2).encoder(HEAD)
    first = [frame.data for frame in encoder.encode(ChoiceFinished(FinishReason.EOS, 1))]
    assert [choice["index"] for choice in choices(first)] == [1]
    assert "timings" not in first[0]
    assert list(encoder.encode(ChoiceFinished(FinishReason.LENGTH, 0))) == []
    last = [frame.data for frame in encoder.encode(FINISHED)]
    assert last[0]["choices"][0] == {
        "index": 0,
        "delta": {},
        "finish_reason": "length",
        "logprobs": None,
    }
    assert last[0]["timings"]["predicted_n"] == 4
    assert last[1:] == ["[DONE]"]


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (FinishReason.EOS, "stop"),
        (FinishReason.STOP, "stop"),
        (FinishReason.STRUCTURE, "stop"),
        (FinishReason.LOOP, "stop"),
        (FinishReason.LENGTH, "length"),
        (FinishReason.CONTEXT, "length"),
        (FinishReason.TOOL_CALLS, "tool_calls"),
    ],
)
def test_finish_reasons(reason: FinishReason, word: str) -> None:
    events = [ChoiceFinished(reason), FINISHED]
    assert frames(chat_read(), events)[0]["choices"][0]["finish_reason"] == word
    assert body(chat_read(), events)["choices"][0]["finish_reason"] == word


def test_every_reason_has_a_word() -> None:
    for reason in FinishReason:
        assert body(chat_read(), [ChoiceFinished(reason), FINISHED])


def test_tokens_without_text_have_a_chunk_each() -> None:
    read = chat_read(logprobs=True)
    found = choices(frames(read, [TextDelta("", 0, (A, B)), TextDelta("ab", 0, (A, B))]))
    assert [choice["delta"] for choice in found] == [
        {"content": ""},
        {"content": ""},
        {"content": "ab"},
    ]
    said = [[entry["token"] for entry in choice["logprobs"]["content"]] for choice in found]
    assert said == [["a"], ["b"], ["a", "b"]]


def test_a_call_comes_in_two_parts() -> None:
    found = choices(frames(chat_read(n=2), [ToolCallDelta(2, "call_x", "f", '{"a":1}', 1)]))
    assert [choice["delta"]["tool_calls"] for choice in found] == [
        [{"index": 2, "id": "call_x", "type": "function", "function": {"name": "f"}}],
        [{"index": 2, "function": {"arguments": '{"a":1}'}}],
    ]
    assert [choice["index"] for choice in found] == [1, 1]


@pytest.mark.parametrize(
    ("alias", "keys"),
    [("reasoning", {"reasoning_content", "reasoning"}), (None, {"reasoning_content"})],
    ids=["alias", "no-alias"],
)
def test_reasoning_has_one_name_or_two(alias: str | None, keys: set[str]) -> None:
    read = chat_read(rules=replace(RULES, reasoning_alias=alias))
    events = [ReasoningDelta("hm"), ChoiceFinished(FinishReason.EOS), FINISHED]
    assert frames(read, events)[0]["choices"][0]["delta"] == dict.fromkeys(keys, "hm")
    message = body(read, events)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": ""} | dict.fromkeys(keys, "hm")


def test_an_answer_without_reasoning_names_none() -> None:
    message = body(chat_read(), [TextDelta("a"), ChoiceFinished(FinishReason.EOS), FINISHED])
    assert message["choices"][0]["message"] == {"role": "assistant", "content": "a"}
    assert "reasoning_only" not in message


def test_reasoning_only_stands_beside_each_choice_and_for_the_only_one_at_the_top() -> None:
    thought = [ReasoningDelta("a"), ChoiceFinished(FinishReason.LENGTH, reasoning_only=True)]
    mixed = ChoiceFinished(FinishReason.LENGTH, 1)
    two = body(chat_read(n=2), [*thought, mixed, FINISHED])
    streamed = frames(chat_read(n=2), [*thought, mixed, FINISHED])
    assert ["reasoning_only" in choice for choice in two["choices"]] == [True, False]
    assert ["reasoning_only" in one["choices"][0] for one in streamed[1:3]] == [True, False]
    assert not any("reasoning_only" in one for one in [two, *streamed[1:3]])
    one = body(chat_read(), [*thought, FINISHED])
    last = frames(chat_read(), [*thought, FINISHED])[-2]
    for whole in (one, last):
        assert whole["reasoning_only"] is whole["choices"][0]["reasoning_only"] is True


def test_logprobs_that_were_asked_for_are_there_for_an_empty_answer_too() -> None:
    events = [ChoiceFinished(FinishReason.EOS), FINISHED]
    assert body(chat_read(logprobs=True), events)["choices"][0]["logprobs"] == {"content": []}
    assert body(chat_read(), events)["choices"][0]["logprobs"] is None


def test_a_failure_ends_the_stream_without_the_finish_that_waited() -> None:
    error = Failed(ErrorInfo(code="worker_died", status=503, message="gone"))
    found = frames(chat_read(), [ChoiceFinished(FinishReason.EOS), error])
    assert [set(frame) for frame in found] == [{"error"}]


def deltas(choice: int) -> st.SearchStrategy[list[Event]]:
    """All events of one choice, the end among them."""
    tokens = st.lists(st.sampled_from([A, B]), min_size=1, max_size=3).map(tuple)
    none: st.SearchStrategy[tuple[TokenLogprobs, ...]] = st.just(())
    words = st.text(min_size=1, max_size=4)
    texts = st.builds(TextDelta, words, st.just(choice), tokens | none)
    silent = st.builds(TextDelta, st.just(""), st.just(choice), tokens)
    thoughts = st.builds(ReasoningDelta, words, st.just(choice), tokens | none)
    said = st.lists(texts | silent | thoughts, max_size=6)
    calls = st.integers(0, 2).map(
        lambda count: [ToolCallDelta(i, f"call_{i}", "f", "{}", choice) for i in range(count)]
    )
    return st.tuples(said, calls).map(
        lambda both: [
            *both[0],
            *both[1],
            ChoiceFinished(FinishReason.TOOL_CALLS if both[1] else FinishReason.EOS, choice),
        ]
    )


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[int, list[Event]]:
    count = draw(st.integers(1, 3))
    rows = [draw(deltas(choice)) for choice in range(count)]
    turns = draw(st.permutations([i for i, row in enumerate(rows) for _ in row]))
    waiting = [iter(row) for row in rows]
    return count, [Accepted(9), *(next(waiting[turn]) for turn in turns), FINISHED]


@given(interleaved())
def test_the_stream_joined_is_the_body(case: tuple[int, list[Event]]) -> None:
    count, events = case
    read = chat_read(n=count, logprobs=True, stream=True, stream_options={"include_usage": True})
    found = frames(read, events)
    whole = body(read, events)
    assert found.pop() == "[DONE]"
    assert found.pop()["usage"] == whole["usage"]
    assert found[-1]["timings"] == whole["timings"]
    assert [joined(found, index) for index in range(count)] == whole["choices"]


def joined(found: list[Any], index: int) -> dict[str, Any]:
    """One choice of a stream in the shape it has in a body."""
    parts = [choice for choice in choices(found) if choice["index"] == index]
    texts: dict[str, str] = defaultdict(str)
    calls: dict[int, dict[str, Any]] = {}
    tokens: list[Any] = []
    for part in parts[1:]:
        for key in ("content", "reasoning_content", "reasoning"):
            texts[key] += part["delta"].get(key, "")
        for call in part["delta"].get("tool_calls", ()):
            known = calls.setdefault(call["index"], {})
            function = known.get("function", {}) | call["function"]
            known |= {k: v for k, v in call.items() if k != "index"} | {"function": function}
        tokens += (part["logprobs"] or {"content": ()})["content"]
    message: dict[str, Any] = {"role": parts[0]["delta"]["role"]}
    message["content"] = None if calls and not texts["content"] else texts["content"]
    message |= {k: texts[k] for k in ("reasoning_content", "reasoning") if texts[k]}
    assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    return {
        "index": index,
        "message": message | ({"tool_calls": list(calls.values())} if calls else {}),
        "finish_reason": parts[-1]["finish_reason"],
        "logprobs": {"content": tokens},
    }
