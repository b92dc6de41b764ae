"""A stream of text chunks against the body of the same events."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
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
    PromptScored,
    PromptToken,
    Started,
    TextDelta,
    Timings,
    TokenLogprobs,
    Usage,
)
from mlxcel.generation.collect import collect
from mlxcel.protocols.base import Head
from mlxcel.protocols.openai.completions import CompletionRead
from tests.protocols.openai.reading import completion_read

HEAD = Head(id="cmpl-0", created=1790000000, model="tiny")
FINISHED = Finished(
    Usage(prompt_tokens=9, completion_tokens=4),
    Timings(queued_ms=1.0, prompt_ms=10.0, decode_ms=20.0, total_ms=40.0),
)
PROMPT = (PromptToken("<s>", None, b"<s>", 1), PromptToken("é", -2.0, "é".encode(), 2))
END = ChoiceFinished(FinishReason.EOS)


def said(text: str) -> TokenLogprobs:
    return TokenLogprobs(Likely(text, -0.5, text.encode()), ())


def frames(read: CompletionRead, events: Iterable[Event]) -> list[Any]:
    encoder = read.encoder(HEAD)
    return [frame.data for event in events for frame in encoder.encode(event)]


def body(read: CompletionRead, events: Iterable[Event]) -> dict[str, Any]:
    async def replayed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return read.answer(HEAD, asyncio.run(collect(replayed())))


def choices(found: Iterable[Any]) -> list[dict[str, Any]]:
    return [choice for frame in found if frame != "[DONE]" for choice in frame["choices"]]


def joined(found: Iterable[Any]) -> dict[int, dict[str, Any]]:
    """What a client makes of the chunks of a stream, by choice."""
    whole: defaultdict[int, dict[str, Any]] = defaultdict(lambda: {"text": "", "lists": {}})
    for choice in choices(found):
        one = whole[choice["index"]]
        one["text"] += choice["text"]
        for name, share in (choice["logprobs"] or {}).items():
            one["lists"].setdefault(name, []).extend(share)
        if choice["finish_reason"] is not None:
            assert "finish_reason" not in one, "a choice ends once"
            one["finish_reason"] = choice["finish_reason"]
    return dict(whole)


@given(
    deltas=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "é", "🎭 "]))),
    order=st.permutations(range(4)),
    has_scores=st.booleans(),
    is_echoed=st.booleans(),
)
def test_a_stream_says_what_the_body_says(
    deltas: list[tuple[int, str]], order: list[int], has_scores: bool, is_echoed: bool
) -> None:
    """Four choices: two of each of two prompts."""
    asked: dict[str, Any] = {"logprobs": 0} if has_scores else {}
    asked |= {"prompt": ["a", "b"], "n": 2, "echo": is_echoed}
    echoed: list[Event] = []
    for choice in range(4):
        if is_echoed and has_scores:
            echoed.append(PromptScored(PROMPT, choice))
        if is_echoed:
            echoed.append(TextDelta("é", choice))
    told = [TextDelta(t, c, (said(t),) if has_scores else ()) for c, t in deltas]
    ends = [ChoiceFinished(FinishReason.LENGTH, choice) for choice in order]
    events = [Accepted(9), *echoed, Started(0.0, 0.0), *told, *ends, FINISHED]
    streamed = joined(frames(completion_read(stream=True, **asked), events))
    whole = {c["index"]: c for c in body(completion_read(**asked), events)["choices"]}
    for index, choice in whole.items():
        one = streamed[index]
        assert (one["text"], one["finish_reason"]) == (choice["text"], choice["finish_reason"])
        lists = choice["logprobs"] or {}
        assert one["lists"] == {name: share for name, share in lists.items() if share}


def test_no_chunk_opens_a_stream_and_none_is_empty() -> None:
    encoder = completion_read(stream=True).encoder(HEAD)
    events = (Accepted(9), Started(0.0, 0.0), TextDelta(""))
    assert [frame for event in events for frame in encoder.encode(event)] == []


def test_scores_of_a_prompt_without_text_come_at_the_end() -> None:
    """The empty prompt: its beginning is a token, and has no text."""
    bos = PromptToken("<s>", None, b"", 1)
    read = completion_read(stream=True, prompt="", echo=True, logprobs=1, max_tokens=0)
    found = choices(frames(read, [Accepted(1), PromptScored((bos,)), END, FINISHED]))
    assert [choice["finish_reason"] for choice in found] == [None, "stop"]
    assert found[0]["logprobs"]["tokens"] == ["<s>"]
    assert found[0]["text"] == ""


def test_offsets_count_for_each_choice_alone() -> None:
    events = [TextDelta(t, c, (said(t),)) for c, t in [(0, "é"), (1, "a"), (0, "b"), (1, "c")]]
    found = choices(frames(completion_read(stream=True, n=2, logprobs=0), events))
    offsets = [(choice["index"], choice["logprobs"]["text_offset"]) for choice in found]
    assert offsets == [(0, [0]), (1, [0]), (0, [2]), (1, [1])]


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_failure_ends_a_stream_without_done(has_begun: bool) -> None:
    error = ErrorInfo(code="generation_failed", message="m", status=500)
    told: list[Event] = [TextDelta("a")] if has_begun else []
    found = frames(completion_read(stream=True), [Accepted(9), *told, Failed(error)])
    assert found[-1]["error"]["message"] == "m"
    assert "[DONE]" not in found
    assert all(choice["finish_reason"] is None for choice in choices(found[:-1]))


@pytest.mark.parametrize("wants_usage", [True, False])
def test_usage_is_told_once_and_last(wants_usage: bool) -> None:
    options = {"include_usage": wants_usage}
    found = frames(
        completion_read(stream=True, stream_options=options), [TextDelta("a"), END, FINISHED]
    )
    assert found[-1] == "[DONE]"
    with_usage = [frame for frame in found[:-1] if "usage" in frame]
    assert with_usage == ([found[-2]] if wants_usage else [])
    if wants_usage:
        assert found[-2]["choices"] == []
        assert found[-2]["usage"]["total_tokens"] == 13
