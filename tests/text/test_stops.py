import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.text.stops import StopMatcher

SMALL = st.text("abc", max_size=20)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def run(stops: list[str], parts: list[str]) -> tuple[list[str], str | None]:
    matcher, said = StopMatcher(stops), []
    for part in parts:
        text, matched = matcher.feed(part)
        said.append(text)
        if matched is not None:
            return said, matched
    text, matched = matcher.flush()
    return [*said, text], matched


def whole_text_answer(stops: list[str], text: str) -> tuple[str, str | None]:
    """The rule itself, on text that is all there."""
    found = [(text.find(stop), index) for index, stop in enumerate(stops) if stop in text]
    if not found:
        return text, None
    start, index = min(found)
    return text[:start], stops[index]


@given(stops=STOPS, parts=st.lists(SMALL, max_size=8))
def test_any_split_gives_the_answer_of_the_whole_text(stops: list[str], parts: list[str]) -> None:
    said, matched = run(stops, parts)
    assert ("".join(said), matched) == whole_text_answer(stops, "".join(parts))


@given(stops=STOPS, text=st.text("abc", max_size=40))
def test_nothing_shown_ever_holds_a_stop(stops: list[str], text: str) -> None:
    said, _ = run(stops, list(text))
    assert not any(stop in "".join(said) for stop in stops)


@given(stops=STOPS, text=SMALL)
def test_only_a_possible_beginning_is_held_back(stops: list[str], text: str) -> None:
    shown, matched = StopMatcher(stops).feed(text)
    if matched is None:
        held = text[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("stops", "parts", "said", "matched"),
    [
        pytest.param(["STOP", "TO"], ["aSTOPb"], ["a"], "STOP", id="earliest-start"),
        pytest.param(["STOP"], ["aS", "T", "x"], ["a", "", "STx", ""], None, id="hold-back"),
        pytest.param(["STOP", "TO"], ["aST", "Ox"], ["a", "S"], "TO", id="earlier-one-failed"),
        pytest.param(["abc", "ab"], ["ab", "c"], ["", ""], "abc", id="tie-waits-for-the-first"),
        pytest.param(["ab", "abc"], ["ab"], [""], "ab", id="tie-first-is-complete"),
        pytest.param(["abc", "ab"], ["ab"], ["", ""], "ab", id="decided-at-the-end"),
        pytest.param(["", "x"], ["abc"], ["abc", ""], None, id="empty-stop-never-matches"),
        pytest.param(["-c"], ["ab-", "cd"], ["ab", ""], "-c", id="over-a-border"),
    ],
)
def test_examples(stops: list[str], parts: list[str], said: list[str], matched: str | None) -> None:
    assert run(stops, parts) == (said, matched)
