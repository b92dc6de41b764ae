"""Bounds that are looked at where a line ends."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.events import FinishReason
from mlxcel.generation.lines import LineLimits


def fed(pieces: list[str], *, indent: int = 0, limit_ms: int = 0, tick_s: float = 0.0) -> str:
    now = [0.0]

    def clock() -> float:
        now[0] += tick_s
        return now[0]

    lines = LineLimits(indent=indent, time_limit_ms=limit_ms, clock=clock)
    said = ""
    for piece in pieces:
        text, reason = lines.feed(piece)
        said += text
        if reason is not None:
            return f"{said}<{reason}>"
    return said


@pytest.mark.parametrize(
    ("text", "indent", "said"),
    [
        pytest.param("a\n  b\n  c", 2, "a\n  b\n  c", id="deep-enough"),
        pytest.param("a\n  b\nc = 1\nd", 2, "a\n  b\n<indent>", id="outdented"),
        pytest.param("a\n\tb\n c", 1, "a\n\tb\n c", id="tabs-count-one"),
        pytest.param("a\n b", 2, "a\n <indent>", id="blanks-before-it-are-shown"),
        pytest.param("  a\nb", 1, "  a\n<indent>", id="first-line-is-free"),
        pytest.param("a\n\n  b", 2, "a\n<indent>", id="an-empty-line-has-none"),
        pytest.param("a\nb", 0, "a\nb", id="off"),
    ],
)
def test_a_line_that_is_indented_less_ends_the_answer(text: str, indent: int, said: str) -> None:
    assert fed([text], indent=indent) == said
    assert fed(list(text), indent=indent) == said


@given(st.text(alphabet="a \n\t", max_size=30), st.integers(1, 3), st.data())
def test_how_the_text_is_cut_changes_nothing(text: str, indent: int, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    cuts = [0, *places, len(text)]
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    assert fed(pieces, indent=indent) == fed([text], indent=indent)


def test_time_is_looked_at_where_a_line_ends() -> None:
    # A clock that goes on by a second a look; the first starts it.
    pieces = ["a", "b", "c\n", "d", "e\n"]
    assert fed(pieces, limit_ms=1500, tick_s=1.0) == f"abc\n<{FinishReason.TIME}>"
    assert fed(pieces, limit_ms=4500, tick_s=1.0) == f"abc\nde\n<{FinishReason.TIME}>"
    assert fed(pieces, limit_ms=99_000, tick_s=1.0) == "abc\nde\n"
    assert fed(["a", "b", "c"], limit_ms=1, tick_s=1.0) == "abc"
