"""Excerpts of the place where a prompt parts from what was kept."""

import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, Divergence
from mlxcel.generation.explain import explainer
from tests.text.merging import merging_text
from tests.text.thinkers import speaker

BYTES = speaker()
SAYS = explainer(BYTES.vocabulary)


def excerpts(prompt: bytes, entry: bytes, *, at: int, start: int = 0) -> tuple[str, str]:
    place = Divergence(
        at=at, start=start, prompt_ids=tuple(prompt), entry_ids=tuple(entry), differs=("tools",)
    )
    told = SAYS(CacheReport(status=CacheStatus.MISS, diverged=place))
    assert told is not None
    assert told.diverged is not None
    assert (told.diverged.at, told.diverged.differs) == (at, ("tools",))
    return told.diverged.prompt_text, told.diverged.entry_text


def test_both_sides_are_shown_with_what_they_share() -> None:
    assert excerpts(b"the cat", b"the dog", at=14, start=10) == ("the cat", "the dog")


def test_side_that_ends_there_shows_what_is_shared() -> None:
    assert excerpts(b"the ", b"the dog", at=4) == ("the ", "the dog")


def test_excerpts_are_short_and_hold_the_difference() -> None:
    shared = b"x" * 500
    prompt, entry = excerpts(shared + b"cat" * 500, shared + b"dog" * 500, at=500)
    assert len(prompt) == len(entry) == 80
    assert prompt.startswith("x" * 30 + "catcat")
    assert entry.startswith("x" * 30 + "dogdog")


@pytest.mark.parametrize("data", ["é".encode()[1:], "🎭".encode()[:2], b"\xff\xfe"])
def test_broken_characters_do_no_harm(data: bytes) -> None:
    prompt, entry = excerpts(data, b"a", at=0)
    assert (set(prompt), entry) == ({"\ufffd"}, "a")


def test_special_tokens_are_shown_by_their_names() -> None:
    text = merging_text()
    ids = tuple(text.encode("<|im_start|>user"))
    place = Divergence(at=1, prompt_ids=ids, entry_ids=(999_999,))
    told = explainer(text.vocabulary)(CacheReport(status=CacheStatus.HIT, diverged=place))
    assert told is not None
    assert told.diverged is not None
    assert (told.diverged.prompt_text, told.diverged.entry_text) == ("<|im_start|>user", "")


def test_report_without_a_place_is_left_as_it_is() -> None:
    hit = CacheReport(status=CacheStatus.HIT, reused=5)
    assert SAYS(hit) is hit
    assert SAYS(None) is None
