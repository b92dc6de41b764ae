"""The rows of a request become its events: text, ends, counts, several choices."""

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
    Started,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.link.messages import RowAccepted, RowEvent, RowFailed, RowTokens
from tests.generation.rows import (
    BEGUN,
    end_of,
    ended,
    finish_of,
    finished,
    new_assembler,
    play,
    said,
    text_of,
    whole,
)
from tests.generation.speaking import chat_model

PLAIN = chat_model()


def assembled(rows: list[RowEvent], stops: tuple[str, ...] = (), **how: Any) -> list[Event]:
    answer = new_assembler(PLAIN, stop=stops, **how)
    events = play(answer, rows)
    assert answer.is_done
    return events


@given(
    data=st.binary(max_size=40),
    cuts=st.lists(st.integers(0, 40)),
    stops=st.lists(st.sampled_from(["a", "ab", "\x00", "é", "\ufffd"]), max_size=3),
)
def test_stream_is_the_same_however_tokens_arrive(
    data: bytes, cuts: list[int], stops: list[str]
) -> None:
    parts = assembled(whole(data, cuts), tuple(stops))
    once = assembled(whole(data), tuple(stops))
    assert text_of(parts) == text_of(once)
    assert end_of(parts) == end_of(once)
    assert finish_of(parts).usage.completion_tokens == finish_of(once).usage.completion_tokens


@given(data=st.binary(max_size=40), cuts=st.lists(st.integers(0, 40)))
def test_joined_stream_is_the_decoded_text(data: bytes, cuts: list[int]) -> None:
    events = assembled(whole(data, cuts))
    assert text_of(events) == data.decode(errors="replace")
    assert all(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("cut", range(1, 9))
def test_stop_ends_the_answer_at_every_split(cut: int) -> None:
    events = assembled(whole(b"ab-cd-ef", [cut]), ("-c",))
    assert text_of(events) == "ab"
    assert end_of(events) == ChoiceFinished(FinishReason.STOP, matched_stop="-c")
    assert finish_of(events).usage == Usage(prompt_tokens=5, completion_tokens=4)


def test_no_delta_shows_a_part_of_the_stop() -> None:
    events = assembled(whole(b"ab-cd", range(5)), ("-c",))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b"]


@pytest.mark.parametrize("cuts", [[], range(1, 6), [2, 3]], ids=["whole", "each", "aS-T-OPb"])
def test_stop_that_starts_first_wins(cuts: list[int]) -> None:
    events = assembled(whole(b"aSTOPb", cuts), ("STOP", "TO"))
    assert (text_of(events), end_of(events).matched_stop) == ("a", "STOP")


def test_tail_that_may_be_a_stop_is_withheld() -> None:
    answer = new_assembler(PLAIN, stop=("STOP", "TO"))
    shown = [text_of(play(answer, [*said(part)])) for part in (b"aS", b"T", b"x")]
    assert shown == ["a", "", "STx"]


def test_stop_of_many_bytes_matches_over_tokens() -> None:
    events = assembled(whole("a🎭b".encode(), range(6)), ("🎭",))
    assert (text_of(events), end_of(events).matched_stop) == ("a", "🎭")


def test_order_is_accepted_text_end_finished() -> None:
    kinds = [type(event) for event in assembled(whole(b"hi"))]
    assert kinds == [Accepted, Started, TextDelta, ChoiceFinished, Finished]


def test_finish_keeps_the_workers_numbers_and_adds_the_wall_time() -> None:
    finish = finish_of(assembled(whole(b"hi")))
    assert finish.usage == Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=2)
    assert finish.timings == Timings(queued_ms=1.0, prompt_ms=2.0, decode_ms=3.0, total_ms=2000.0)


def test_stop_has_timings_of_its_own() -> None:
    timings = finish_of(assembled(whole(b"x!"), ("!",))).timings
    assert timings == Timings(queued_ms=7.0, prompt_ms=8.0, decode_ms=1000.0, total_ms=3000.0)


@pytest.mark.parametrize(
    ("data", "stops", "text", "reason"),
    [
        pytest.param(b"a\xf0\x9f", (), "a\ufffd", FinishReason.EOS, id="broken-tail"),
        pytest.param(b"aST", ("STOP",), "aST", FinishReason.EOS, id="stop-never-completed"),
        pytest.param(b"ab", ("abc", "b"), "a", FinishReason.STOP, id="stop-decided-at-the-end"),
    ],
)
def test_what_was_held_back_is_said_at_the_end(
    data: bytes, stops: tuple[str, ...], text: str, reason: FinishReason
) -> None:
    events = assembled(whole(data), stops)
    assert (text_of(events), end_of(events).reason) == (text, reason)
    assert finish_of(events).usage == Usage(
        prompt_tokens=5, completion_tokens=len(data), cached_tokens=2
    )


@pytest.mark.parametrize(
    "reason", [FinishReason.LENGTH, FinishReason.CONTEXT, FinishReason.LOOP, FinishReason.STRUCTURE]
)
def test_reason_of_the_worker_is_passed_on(reason: FinishReason) -> None:
    assert end_of(assembled(whole(b"hi", reason=reason))) == ChoiceFinished(reason)


def test_answer_without_a_token_ends_too() -> None:
    events = assembled([BEGUN[0], ended(), finished(0)])
    assert [type(event) for event in events] == [Accepted, ChoiceFinished, Finished]


def test_failure_ends_the_events_with_its_error() -> None:
    error = ErrorInfo(code="worker_died", status=503, message="gone")
    events = assembled([RowAccepted("r1"), *said(b"a"), RowFailed("r1", error)])
    assert events == [Accepted(5), TextDelta("a"), Failed(error)]


FORCED = RowTokens(id="r1", ids=list(b"-c"), is_forced=True)


def test_forced_tokens_match_no_stop() -> None:
    rows = [*BEGUN, *said(b"a"), FORCED, *said(b"b"), ended(), finished(4)]
    events = assembled(rows, ("-c", "-", "cb"))
    assert (text_of(events), end_of(events).reason) == ("a-cb", FinishReason.EOS)


def test_stop_is_not_completed_by_forced_tokens() -> None:
    rows = [*BEGUN, *said(b"a-"), FORCED, *said(b"-c"), ended(), finished(6)]
    events = assembled(rows, ("--", "-c"))
    assert (text_of(events), end_of(events).matched_stop) == ("a--c", "-c")
    assert finish_of(events).usage.completion_tokens == 6


def test_stop_is_decided_before_forced_tokens() -> None:
    rows = [*BEGUN, *said(b"ab"), FORCED, *said(b"x"), ended(), finished(5)]
    events = assembled(rows, ("abc", "b"))
    assert (text_of(events), end_of(events).matched_stop) == ("a", "b")
    assert finish_of(events).usage.completion_tokens == 2


def test_echo_is_told_first_and_by_every_choice() -> None:
    rows = [BEGUN[0]]
    events = play(new_assembler(PLAIN, echoed="Once", choices=2), rows)
    assert events == [Accepted(5), TextDelta("Once", 0), TextDelta("Once", 1)]


def test_echo_is_neither_counted_nor_searched_for_stops() -> None:
    events = assembled(whole(b" more"), ("Once",), echoed="Once")
    assert (text_of(events), end_of(events).reason) == ("Once more", FinishReason.EOS)
    assert finish_of(events).usage.completion_tokens == 5


def two(*rows: RowEvent, stops: tuple[str, ...] = ()) -> list[Event]:
    return play(new_assembler(PLAIN, choices=2, stop=stops), [*BEGUN, *rows])


def test_choices_are_told_apart_and_each_ends_once() -> None:
    events = two(
        *said(b"a"), *said(b"x", choice=1), ended(1), *said(b"b"),
        ended(0, FinishReason.LENGTH), finished(3),
    )  # fmt: skip
    assert (text_of(events, 0), text_of(events, 1)) == ("ab", "x")
    assert end_of(events, 0) == ChoiceFinished(FinishReason.LENGTH, 0)
    assert end_of(events, 1) == ChoiceFinished(FinishReason.EOS, 1)
    assert finish_of(events).usage.completion_tokens == 3


def test_choices_hold_back_text_of_their_own() -> None:
    events = two(
        *said(b"\xc3"), *said(b"-", choice=1), *said(b"\xa9"), *said(b"c", choice=1), stops=("-c",)
    )
    assert (text_of(events, 0), text_of(events, 1)) == ("é", "")
    assert end_of(events, 1).matched_stop == "-c"


def test_stopped_choice_is_ignored_and_the_other_goes_on() -> None:
    events = two(
        *said(b"a!"), *said(b"more"), *said(b"x", choice=1), ended(0),
        *said(b"y", choice=1), ended(1), finished(8), stops=("!",),
    )  # fmt: skip
    assert (text_of(events, 0), text_of(events, 1)) == ("a", "xy")
    assert end_of(events, 0).matched_stop == "!"
    assert finish_of(events).usage == Usage(prompt_tokens=5, completion_tokens=4, cached_tokens=2)


@pytest.mark.parametrize("last", ["stop", "worker"])
def test_request_is_over_once_all_have_ended_although_one_still_runs(last: str) -> None:
    rows = [*said(b"a!"), *said(b"x", choice=1), ended(1)]
    if last == "stop":
        rows = [*said(b"x", choice=1), ended(1), *said(b"a!")]
    events = two(*rows, stops=("!",))
    assert finish_of(events).usage == Usage(prompt_tokens=5, completion_tokens=3)


def test_all_stopped_is_over_at_once() -> None:
    events = two(*said(b"a!"), *said(b"xy!", choice=1), stops=("!",))
    assert finish_of(events).usage.completion_tokens == 5


@given(data=st.binary(max_size=12), cuts=st.lists(st.integers(0, 12)))
def test_ids_are_told_beside_their_text_and_each_once(data: bytes, cuts: list[int]) -> None:
    """What is held back to the last (half a character, half a stop string) takes its ids along."""
    events = assembled(whole(data, cuts), ("\x00\x01",), tells_ids=True)
    deltas = [event for event in events if isinstance(event, TextDelta)]
    told = [token for delta in deltas for token in delta.ids]
    assert told == list(data[: len(told)])
    assert len(told) == finish_of(events).usage.completion_tokens
    heard, shown = 0, 0
    for delta in deltas:
        heard, shown = heard + len(delta.ids), shown + len(delta.text)
        assert shown <= len(data[:heard].decode(errors="replace"))


def test_a_character_that_stays_half_takes_its_id_along() -> None:
    events = assembled(whole(b"\xc3"), tells_ids=True)
    assert [event for event in events if isinstance(event, TextDelta)] == [
        TextDelta("\ufffd", ids=(0xC3,))
    ]
