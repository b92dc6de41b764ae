"""What the goldens of the agents leave open, and nothing else."""

import pytest

from tests.whole.agents.wire import Stable

CALL = "call_" + "0" * 24
OTHER = "call_" + "1" * 24


def chunk(delta: str) -> str:
    return f'data: {{"choices":[{{"delta":{delta}}}]}}\n\n'


def said(number: int, text: str, kind: str = "output") -> str:
    type = f'"type":"response.{kind}_text.delta"'
    return f'data: {{{type},"sequence_number":{number},"delta":"{text}"}}\n\n'


def thought(number: int, text: str, summary: str | None = None) -> str:
    """A piece, and the same as a piece of the summary."""
    again = text if summary is None else summary
    return said(number, text, "reasoning") + said(number + 1, again, "reasoning_summary")


def test_equal_ids_stay_equal_through_a_conversation() -> None:
    stable = Stable()
    assert (
        stable.answer(f'["{CALL}","{OTHER}","{CALL}"]'.encode()) == '["call_1","call_2","call_1"]'
    )
    assert stable.request([OTHER]) == '[\n "call_2"\n]\n'


@pytest.mark.parametrize("id", ["call_" + "0" * 23, "call_" + "g" * 24, "toolu_", "msg_1"])
def test_an_id_of_another_form_is_not_hidden(id: str) -> None:
    assert Stable().answer(id.encode()) == id


def test_hours_and_spans_are_hidden_alone() -> None:
    raw = b'{"created":17,"completed_at":18,"prompt_ms":1.5e-3,"x_per_second":2,"n":3,"prompt_n":4}'
    hidden = '{"created":0,"completed_at":0,"prompt_ms":0,"x_per_second":0,"n":3,"prompt_n":4}'
    assert Stable().answer(raw) == hidden


def test_pieces_of_one_text_are_joined_and_nothing_else() -> None:
    raw = chunk('{"content":"a\\""}') + chunk('{"content":"é"}') + chunk('{"reasoning":"c"}')
    joined = chunk('{"content":"a\\"é"}') + chunk('{"reasoning":"c"}')
    assert Stable().stream(raw.encode()) == joined


def test_pieces_of_calls_stay_apart() -> None:
    raw = chunk('{"tool_calls":[{"index":0}]}') * 2
    assert Stable().stream(raw.encode()) == raw


def test_numbers_are_those_of_the_frames_that_are_left() -> None:
    raw = said(0, "a") + said(1, "b") + 'data: {"type":"x","sequence_number":2}\n\n'
    joined = said(0, "ab") + 'data: {"type":"x","sequence_number":1}\n\n'
    assert Stable().stream(raw.encode()) == joined


def test_pieces_that_are_told_in_two_ways_are_joined_in_both() -> None:
    raw = thought(0, "a") + thought(2, "b") + said(4, "c")
    assert Stable().stream(raw.encode()) == thought(0, "ab") + said(2, "c")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(thought(0, "a") + thought(2, "b", "c"), id="another-summary"),
        pytest.param(thought(0, "a") + said(2, "b", "reasoning"), id="a-summary-is-left-out"),
        pytest.param(said(0, "a") + said(2, "b"), id="a-number-is-left-out"),
        pytest.param(chunk('{"content":""}'), id="an-empty-piece"),
        pytest.param(said(0, "a").rstrip(), id="a-frame-is-cut"),
        pytest.param('data: {"created":1}\n\ndata: {"created":9}\n\n', id="hours-apart"),
    ],
)
def test_what_is_wrong_whatever_the_clock_says(raw: str) -> None:
    with pytest.raises(AssertionError):
        Stable().stream(raw.encode())
