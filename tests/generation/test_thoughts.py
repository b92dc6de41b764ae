"""How many tokens of an answer are thinking."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.events import Usage
from mlxcel.generation.thoughts import ThoughtCounter
from mlxcel.link.messages import RowTokens
from tests.generation.rows import (
    BEGUN,
    ended,
    finish_of,
    finished,
    new_assembler,
    play,
    said,
    whole,
)
from tests.generation.speaking import THINKS, chat_model

PLAIN, THINKER = chat_model(), chat_model(words=THINKS)
A, B = 7, 8


def counted(ids: Sequence[int], opening: Any = (A,), closing: Any = (B,), **how: Any) -> int:
    counter = ThoughtCounter(opening, closing, **how)
    for token in ids:
        counter.feed(token)
    return counter.tokens


@pytest.mark.parametrize(
    ("ids", "how", "tokens"),
    [
        pytest.param([1, 2], {}, 0, id="none"),
        pytest.param([A, 1, 2, B, 3], {}, 2, id="one-block"),
        pytest.param([A, 1, B, 3, A, 2, 2, B], {}, 3, id="two-blocks"),
        pytest.param([A, B], {}, 0, id="empty-block"),
        pytest.param([A, 1, 2], {}, 2, id="cut-off"),
        pytest.param([1, 2, B, 3], {"is_open": True}, 2, id="open-in-the-prompt"),
        pytest.param([1, B, 2], {}, 0, id="closing-without-opening"),
        pytest.param([A, 1, A, 2, B], {}, 3, id="opening-within"),
        pytest.param(
            [A, 5, 1, B, 1, B, 6, 2], {"opening": (A, 5), "closing": (B, 6)}, 3, id="long-markers"
        ),
        pytest.param([A, 1, 5], {"opening": (A, 5)}, 0, id="half-a-marker"),
        pytest.param([A, A, 5, 1, 1], {"opening": (A, 5)}, 2, id="marker-begun-twice"),
        pytest.param([A, 1, B, B, 6], {"closing": (B, 6)}, 2, id="end-begun-twice"),
    ],
)
def test_tokens_inside_of_blocks(ids: list[int], how: dict[str, Any], tokens: int) -> None:
    assert counted(ids, **how) == tokens


def usage(text: str, cuts: Sequence[int] = (), model: Any = THINKER, **how: Any) -> Usage:
    answer = new_assembler(model, **how)
    return finish_of(play(answer, whole(THINKER.text.encode(text), cuts))).usage


@given(st.text("ab \n", max_size=8), st.text("ab", max_size=8), st.lists(st.integers(0, 16)))
def test_an_answer_tells_them_however_its_tokens_arrive(
    thought: str, words: str, cuts: list[int]
) -> None:
    told = usage(f"<think>{thought}</think>{words}", cuts)
    assert told.reasoning_tokens == len(thought)
    assert told.completion_tokens == len(thought) + len(words) + 2


def test_a_model_that_does_not_think_says_nothing() -> None:
    assert usage("abc", model=PLAIN).reasoning_tokens is None
    assert usage("abc").reasoning_tokens == 0
    assert usage("abc</think>d", is_open=True).reasoning_tokens == 3


def test_those_behind_a_stop_do_not_count() -> None:
    """The worker's own count is not there yet."""
    rows = [*BEGUN, *said(THINKER.text.encode("<think>ab</think>xyabc"))]
    told = finish_of(play(new_assembler(THINKER, stop=("y",)), rows)).usage
    assert (told.reasoning_tokens, told.completion_tokens) == (2, 6)
    rows = [*BEGUN, *said(THINKER.text.encode("<think>abc"))]
    told = finish_of(play(new_assembler(THINKER, stop=("b",)), rows)).usage
    assert told.reasoning_tokens == 2


def test_forced_tokens_count() -> None:
    close = RowTokens(id="r1", ids=THINKER.text.encode("so</think>"), is_forced=True)
    rows = [*BEGUN, *said(THINKER.text.encode("<think>ab")), close, ended(), finished(6)]
    assert finish_of(play(new_assembler(THINKER), rows)).usage.reasoning_tokens == 4


def test_those_of_all_choices_are_told_together() -> None:
    ids = THINKER.text.encode("<think>ab</think>c")
    rows = [*BEGUN, *said(ids), *said(ids, choice=1), ended(), ended(1), finished(2 * len(ids))]
    told = finish_of(play(new_assembler(THINKER, choices=2), rows)).usage
    assert told.reasoning_tokens == 4
