from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxcel.text.reasoning import Part, ReasoningSplitter
from mlxcel.text.thinking import PAIRS

R, C, M = Part.REASONING, Part.CONTENT, Part.MARKUP
CUTS = st.sets(st.integers(1, 29))
MARKED = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "</", "a", "b c", " ", "\n\n", "<", "é"]),
    max_size=14,
).map("".join)


def split(
    parts: Iterable[str],
    pair: tuple[str, str] = ("<think>", "</think>"),
    **how: Any,
) -> list[tuple[Part, str]]:
    """Neighbours of one kind joined over the borders of the pieces."""
    splitter = ReasoningSplitter(*pair, **how)
    found: list[tuple[Part, str]] = []
    segments = [one for part in parts for one in splitter.feed(part)] + splitter.finish()
    for segment in segments:
        assert segment.text
        if found and found[-1][0] is segment.part:
            found[-1] = (segment.part, found[-1][1] + segment.text)
        else:
            found.append((segment.part, segment.text))
    return found


def cut(text: str, cuts: set[int]) -> list[str]:
    bounds = [0, *sorted(one for one in cuts if one < len(text)), len(text)]
    return [text[a:b] for a, b in pairwise(bounds)]


@given(
    text=MARKED,
    cuts=CUTS,
    how=st.fixed_dictionaries(
        {"is_open": st.booleans(), "is_fresh": st.booleans(), "hides_closing": st.booleans()}
    ),
)
@example(text="  a <think>", cuts={2, 3, 4}, how={})
def test_result_does_not_depend_on_the_cuts(text: str, cuts: set[int], how: dict[str, Any]) -> None:
    whole = split([text], **how)
    assert split(cut(text, cuts), **how) == whole
    assert split(text, **how) == whole


@pytest.mark.parametrize("is_open", [False, True], ids=["plain", "primed"])
@given(text=MARKED)
def test_nothing_is_lost(is_open: bool, text: str) -> None:
    assert "".join(part for _, part in split([text], is_open=is_open)) == text


@given(text=MARKED)
def test_no_thought_holds_a_closing_and_no_content_an_opening(text: str) -> None:
    for part, said in split(text):
        assert {R: "</think>", C: "<think>"}.get(part, "\0") not in said


@given(text=MARKED)
def test_markup_is_markers_and_space(text: str) -> None:
    for part, said in split(text, hides_closing=True):
        if part is M:
            assert not said.replace("<think>", "").replace("</think>", "").strip()


@pytest.mark.parametrize("pair", PAIRS, ids=[pair[0] for pair in PAIRS])
def test_every_pair_is_split(pair: tuple[str, str]) -> None:
    text = f"{pair[0]}\nI wonder\n{pair[1]}\n\nYes."
    expected = [(M, f"{pair[0]}\n"), (R, "I wonder"), (M, f"\n{pair[1]}\n\n"), (C, "Yes.")]
    assert split(text, pair) == split([text], pair) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Yes.", [(C, "Yes.")], id="no-block"),
        pytest.param(" \nYes.", [(C, " \nYes.")], id="space-of-an-answer-stays"),
        pytest.param(" \n", [(C, " \n")], id="nothing-but-space"),
        pytest.param("\n<think>a", [(M, "\n<think>"), (R, "a")], id="space-before-the-first"),
        pytest.param("<think>a \n", [(M, "<think>"), (R, "a \n")], id="never-closed"),
        pytest.param("<think>a</think>\n\n", [(M, "<think>"), (R, "a"), (M, "</think>\n\n")],
                     id="nothing-said"),
        pytest.param("<think>\n\n</think>\n\nb", [(M, "<think>\n\n</think>\n\n"), (C, "b")],
                     id="nothing-thought"),
        pytest.param(
            "a <think>b</think> c<think>d</think>",
            [(C, "a "), (M, "<think>"), (R, "b"), (M, "</think> "), (C, "c"), (M, "<think>"),
             (R, "d"), (M, "</think>")],
            id="alternating",
        ),
        pytest.param("<thi", [(C, "<thi")], id="half-a-marker"),
        pytest.param("<think>a<think>b", [(M, "<think>"), (R, "a<think>b")], id="twice-opened"),
        pytest.param("a</think>b", [(C, "a</think>b")], id="closing-is-text-where-none-is-open"),
    ],
)  # fmt: skip
def test_examples(text: str, expected: list[tuple[Part, str]]) -> None:
    assert split([text]) == expected


def test_primed_prompt_thinks_from_the_first_word() -> None:
    expected = [(M, "\n"), (R, "a b"), (M, " </think>\n"), (C, "c")]
    assert split(["\na b </think>\nc"], is_open=True) == expected


@pytest.mark.parametrize("is_open", [False, True])
def test_space_after_words_of_the_prompt_stays(is_open: bool) -> None:
    found = split([" if"], is_open=is_open, is_fresh=False)
    assert found == [(R if is_open else C, " if")]


def test_special_closing_is_markup_everywhere() -> None:
    assert split(["a</think> b"], hides_closing=True) == [(C, "a"), (M, "</think> "), (C, "b")]


@given(text=st.text("ab", min_size=1))
def test_words_are_said_at_once(text: str) -> None:
    splitter = ReasoningSplitter("<think>", "</think>")
    assert [(one.part, one.text) for one in splitter.feed(text)] == [(C, text)]


def test_only_what_may_be_a_marker_is_held_back() -> None:
    splitter = ReasoningSplitter("<think>", "</think>")
    shown = ["".join(one.text for one in splitter.feed(part)) for part in ("a <", "th", "e", " b")]
    assert shown == ["a ", "", "<the", " b"]
