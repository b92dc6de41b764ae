"""When an answer counts as a loop."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.steering import LoopGuard
from mlxcel.engine.loop import repeats

USUAL = LoopGuard(shortest=1, longest=20, count=4)


def fires_at(tokens: Sequence[int], guard: LoopGuard) -> int | None:
    """The token, counted from 1, that completes a loop."""
    ends = range(1, len(tokens) + 1)
    return next((end for end in ends if repeats(tokens[:end], guard)), None)


def is_loop(tokens: Sequence[int], guard: LoopGuard) -> bool:
    """The definition, word by word."""
    for size in range(max(1, guard.shortest), guard.longest + 1):
        needed = size * guard.count
        if len(tokens) >= needed:
            tail = list(tokens[len(tokens) - needed :])
            if tail == tail[:size] * guard.count:
                return True
    return False


@pytest.mark.parametrize(
    ("tokens", "place"),
    [
        pytest.param([7, 7, 7, 7], 4, id="one-token"),
        pytest.param([1, 2, 1, 2, 1, 2, 1, 2], 8, id="two-tokens"),
        pytest.param([1, 2, 1, 2, 1, 2, 1], None, id="one-token-short"),
        pytest.param([9, 8, 5, 5, 5, 5], 6, id="after-other-text"),
        pytest.param([*range(20)] * 4, 80, id="longest-block"),
        pytest.param([*range(21)] * 5, None, id="block-too-long"),
    ],
)
def test_fires_when_the_block_is_complete(tokens: list[int], place: int | None) -> None:
    assert fires_at(tokens, USUAL) == place


@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(LoopGuard(shortest=1, longest=0, count=4), id="no-longest"),
        pytest.param(LoopGuard(shortest=1, longest=20, count=1), id="count-1"),
        pytest.param(LoopGuard(shortest=3, longest=2, count=2), id="empty-range"),
    ],
)
def test_never_fires_when_off(guard: LoopGuard) -> None:
    assert fires_at([7] * 50, guard) is None


def test_shortest_zero_counts_as_one() -> None:
    assert fires_at([7] * 9, LoopGuard(shortest=0, longest=4, count=3)) == 3


def test_shortest_holds_back_smaller_blocks() -> None:
    assert fires_at([7] * 9, LoopGuard(shortest=2, longest=4, count=3)) == 6


@given(
    tokens=st.lists(st.integers(0, 1), max_size=40),
    shortest=st.integers(0, 4),
    longest=st.integers(0, 9),
    count=st.integers(0, 5),
)
def test_says_what_the_definition_says(
    tokens: list[int], shortest: int, longest: int, count: int
) -> None:
    guard = LoopGuard(shortest=shortest, longest=longest, count=count)
    expected = guard.is_on and is_loop(tokens, guard)
    assert repeats(tokens, guard) is expected


def test_a_large_guard_stays_cheap_while_text_nearly_repeats() -> None:
    # Size by size this would be longest * longest * count / 2 comparisons.
    guard = LoopGuard(shortest=1, longest=2_000, count=50)
    tokens = ([0] * 49 + [1]) * 2_000
    started = time.process_time()
    assert repeats(tokens, guard)
    assert not repeats(tokens[:2_000], guard)
    assert time.process_time() - started < 1.0
