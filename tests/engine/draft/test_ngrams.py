"""Prompt lookup: the table of the contract, and any text against the rule as it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.engine.draft.ngrams import NgramIndex

TABLE = [
    ([1, 2, 3, 4, 5, 9, 1, 2, 3], [4, 5, 9, 1, 2, 3]),
    ([5, 6, 5, 6], [5, 6]),
    ([7, 7, 7, 7], [7]),
    ([1, 2, 8, 1, 2, 9, 1, 2], [9, 1, 2]),
    ([1, 2, 3], []),
    ([], []),
    ([4], []),
]


def by_the_rule(text: list[int], least: int, most: int, count: int) -> list[int]:
    for size in range(most, least - 1, -1):
        tail = text[-size:]
        for start in range(len(text) - size - 1, -1, -1):
            if len(tail) == size and text[start : start + size] == tail:
                return text[start + size : start + size + count]
    return []


@pytest.mark.parametrize(("text", "proposed"), TABLE, ids=[str(text) for text, _ in TABLE])
def test_what_is_proposed(text: list[int], proposed: list[int]) -> None:
    index = NgramIndex(2, 3)
    index.extend(text)
    assert index.after(7) == proposed
    assert index.after(2) == proposed[:2]


@given(
    text=st.lists(st.integers(0, 3), max_size=40),
    cut=st.integers(0, 40),
    least=st.integers(1, 3),
    more=st.integers(0, 3),
    count=st.integers(1, 9),
)
def test_it_keeps_the_rule_however_the_text_grows(
    text: list[int], cut: int, least: int, more: int, count: int
) -> None:
    index = NgramIndex(least, least + more)
    index.extend(text[:cut])
    index.extend(text[cut:])
    assert index.after(count) == by_the_rule(text, least, least + more, count)
