from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.errors import ErrorInfo
from mlxcel.core.events import (
    Accepted,
    Event,
    Failed,
    Finished,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.generation.assemble import Assembler
from mlxcel.link.messages import (
    RowAccepted,
    RowEvent,
    RowFailed,
    RowFinished,
    RowStarted,
    RowTokens,
)
from mlxcel.text.stops import StopMatcher
from mlxcel.text.tokenizer import byte_text_model

TEXT = byte_text_model()
WORKER_TIMINGS = Timings(queued_ms=1.0, prompt_ms=2.0, decode_ms=3.0)


class Clock:
    """Every reading is one second later."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def row(ids: Sequence[int], cuts: Sequence[int] = ()) -> list[RowEvent]:
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < len(ids)}), len(ids)]
    usage = Usage(prompt_tokens=5, completion_tokens=len(ids), cached_tokens=2)
    return [
        RowAccepted("r"),
        *([RowStarted("r", queued_ms=7.0, prompt_ms=8.0)] if ids else []),
        *(RowTokens("r", list(ids[a:b])) for a, b in pairwise(bounds) if a < b),
        RowFinished("r", FinishReason.EOS, usage, WORKER_TIMINGS),
    ]


def assembled(rows: Sequence[RowEvent], stops: Sequence[str] = ()) -> list[Event]:
    answer = Assembler(
        prompt_tokens=5,
        detokenizer=TEXT.detokenizer(),
        stops=StopMatcher(stops),
        received_s=100.0,
        clock=Clock(),
    )
    events: list[Event] = []
    for event in rows:
        if not answer.is_done:
            events.extend(answer.take(event))
    assert answer.is_done
    return events


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def finish_of(events: Sequence[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


@given(
    data=st.binary(max_size=40),
    cuts=st.lists(st.integers(0, 40)),
    stops=st.lists(st.sampled_from(["a", "ab", "\x00", "é", "\ufffd"]), max_size=3),
)
def test_stream_is_the_same_however_tokens_arrive(
    data: bytes, cuts: list[int], stops: list[str]
) -> None:
    whole, parts = assembled(row(data), stops), assembled(row(data, cuts), stops)
    assert text_of(parts) == text_of(whole)
    assert finish_of(parts).reason == finish_of(whole).reason
    assert finish_of(parts).matched_stop == finish_of(whole).matched_stop
    assert finish_of(parts).usage.completion_tokens == finish_of(whole).usage.completion_tokens


@given(data=st.binary(max_size=40), cuts=st.lists(st.integers(0, 40)))
def test_joined_stream_is_the_decoded_text(data: bytes, cuts: list[int]) -> None:
    events = assembled(row(data, cuts))
    assert text_of(events) == data.decode(errors="replace")
    assert all(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("cut", range(1, 9))
def test_stop_ends_the_answer_at_every_split(cut: int) -> None:
    events = assembled(row(b"ab-cd-ef", [cut]), ["-c"])
    assert text_of(events) == "ab"
    finish = finish_of(events)
    assert (finish.reason, finish.matched_stop) == (FinishReason.STOP, "-c")
    assert finish.usage == Usage(prompt_tokens=5, completion_tokens=4)


def test_no_delta_shows_a_part_of_the_stop() -> None:
    events = assembled(row(b"ab-cd", range(5)), ["-c"])
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b"]


def test_order_is_accepted_text_finished() -> None:
    kinds = [type(event) for event in assembled(row(b"hi"))]
    assert kinds == [Accepted, TextDelta, Finished]


def test_finish_keeps_the_workers_numbers_and_adds_the_wall_time() -> None:
    finish = finish_of(assembled(row(b"hi")))
    assert finish.usage == Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=2)
    assert finish.timings == Timings(queued_ms=1.0, prompt_ms=2.0, decode_ms=3.0, total_ms=2000.0)


def test_stop_has_timings_of_its_own() -> None:
    timings = finish_of(assembled(row(b"x!"), ["!"])).timings
    assert timings == Timings(queued_ms=7.0, prompt_ms=8.0, decode_ms=1000.0, total_ms=3000.0)


@pytest.mark.parametrize(
    ("data", "stops", "text", "reason"),
    [
        pytest.param(b"a\xf0\x9f", [], "a\ufffd", FinishReason.EOS, id="broken-tail"),
        pytest.param(b"aST", ["STOP"], "aST", FinishReason.EOS, id="stop-never-completed"),
        pytest.param(b"ab", ["abc", "b"], "a", FinishReason.STOP, id="stop-decided-at-the-end"),
    ],
)
def test_what_was_held_back_is_said_at_the_finish(
    data: bytes, stops: list[str], text: str, reason: FinishReason
) -> None:
    events = assembled(row(data), stops)
    assert (text_of(events), finish_of(events).reason) == (text, reason)


def test_failure_ends_the_events_with_its_error() -> None:
    error = ErrorInfo(code="worker_died", status=503, message="gone")
    events = assembled([RowAccepted("r"), RowTokens("r", [97]), RowFailed("r", error)])
    assert events == [Accepted(5), TextDelta("a"), Failed(error)]
