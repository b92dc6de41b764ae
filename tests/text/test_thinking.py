import logging

import pytest

from mlxcel.text.thinking import (
    PAIRS,
    Marks,
    Phase,
    find_marks,
    phase_after,
    primed_pair,
    spelt_marks,
)
from mlxcel.text.tokenizer import byte_text_model
from tests.text.thinkers import THINK, UNTHINK, speaker

GEMMA = ("<|channel>", "<channel|>")
MARKS = Marks(opening="<think>", closing="</think>", open_ids=(1,), close_ids=(2,))


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair[0] != "<|channel>thought"])
def test_pair_of_single_tokens_is_found(pair: tuple[str, str]) -> None:
    marks = find_marks(speaker(pair))
    assert marks is not None
    assert (marks.opening, marks.closing) == pair
    assert (marks.open_ids, marks.close_ids) == ((THINK,), (UNTHINK,))


def test_gemmas_opening_is_a_token_and_a_word() -> None:
    marks = find_marks(speaker(GEMMA))
    assert marks is not None
    assert (marks.opening, marks.closing) == ("<|channel>thought", "<channel|>")
    assert (marks.open_ids, marks.close_ids) == ((THINK, *b"thought"), (UNTHINK,))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("<think>",), id="no-closing"),
        pytest.param(("</think>",), id="no-opening"),
        pytest.param(("<think>", "<channel|>"), id="of-two-pairs"),
        pytest.param(("<|channel>",), id="half-of-gemmas"),
    ],
)
def test_half_a_pair_is_none(words: tuple[str, ...]) -> None:
    assert find_marks(speaker(words)) is None


def test_model_without_markers_has_none() -> None:
    assert find_marks(byte_text_model()) is None


def test_a_template_tells_how_bytes_think() -> None:
    marks = spelt_marks(byte_text_model(), "{{ '<think>' }} {{ '</think>' }}")
    assert marks is not None
    assert (marks.open_ids, marks.close_ids) == (tuple(b"<think>"), tuple(b"</think>"))


@pytest.mark.parametrize(
    ("words", "template"),
    [
        pytest.param((), "<think> alone", id="half-a-pair"),
        pytest.param((), "nothing", id="none"),
        pytest.param(("<think>", "</think>"), "<think></think>", id="no-bytes"),
    ],
)
def test_what_is_not_spelt_in_bytes_tells_nothing(words: tuple[str, ...], template: str) -> None:
    assert spelt_marks(speaker(words), template) is None


def test_first_pair_of_the_list_wins() -> None:
    marks = find_marks(speaker((*GEMMA, "</think>", "<think>")))
    assert marks is not None
    assert marks.opening == "<think>"


@pytest.mark.parametrize("special", [True, False])
def test_only_a_special_closing_says_nothing_by_itself(special: bool) -> None:
    marks = find_marks(speaker(special=special))
    assert marks is not None
    assert marks.hides_closing is special


def test_one_line_names_pair_and_token_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    find_marks(speaker(GEMMA))
    line = "the model thinks between <|channel>thought and <channel|> (8 and 1 tokens)"
    assert [record.getMessage() for record in caplog.records] == [line]


@pytest.mark.parametrize(
    ("head", "begun", "phase"),
    [
        pytest.param("[answer]", "", Phase.PENDING, id="may-think"),
        pytest.param("[answer]<think>\n", "", Phase.OPEN, id="primed"),
        pytest.param("[answer]<think>\n\n</think>\n\n", "", Phase.CLOSED, id="closed-by-template"),
        pytest.param("[answer]", "Once", Phase.CLOSED, id="answer-begun"),
        pytest.param("[answer]", " \n", Phase.PENDING, id="blank-begun"),
        pytest.param("[answer]<think>\n", "I wonder", Phase.OPEN, id="thought-begun"),
        pytest.param("[answer]<think>\n", "I</think>Once", Phase.CLOSED, id="block-closed"),
        pytest.param("[answer]", "<think>I wonder", Phase.OPEN, id="block-opened-by-client"),
        pytest.param("What is <think>?[answer]", "", Phase.PENDING, id="asked-about"),
        pytest.param("What is <think>\n", "", Phase.OPEN, id="last-word-of-the-prompt"),
    ],
)
def test_phase_a_prompt_leaves_the_model_in(head: str, begun: str, phase: Phase) -> None:
    assert phase_after(head + begun, begun, MARKS) is phase


@pytest.mark.parametrize("opening", [pair[0] for pair in PAIRS])
def test_primed_pair_is_known_by_its_text(opening: str) -> None:
    assert primed_pair(f"q{opening}\n\n") in PAIRS
    assert primed_pair(f"{opening}q") is None
