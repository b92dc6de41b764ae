"""Windows that are full, of rows that go on all the same: what they forget, what they say then, and
what becomes of the cache."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.cache import CacheTag
from mlxcel.core.events import FinishReason
from mlxcel.core.request import Lane
from mlxcel.engine.schedule.shift import LEAST_SHARE, ShiftRules
from mlxcel.link.messages import Ask, Cancel, Question, RowFinished, RowPaused
from tests.engine.cache.warm_rows import TAG, assert_cold, reused, stats, until
from tests.engine.driver import Driver, submit

pytestmark = pytest.mark.slow

PROMPT = [1 + (7 * i) % 90 for i in range(60)]
WINDOW = 128


def shifting(tiny: Path, keep: int = 4, *, window: int = WINDOW, **options: Any) -> Driver:
    slots = {"parallel": 4} | options
    ctx_size = window * slots["parallel"]
    cache = slots.pop("cache", {}) | {"context_shift": True, "keep": keep}
    return Driver(tiny, ctx_size=ctx_size, cache=cache, **slots)


def expected(tiny: Path, prompt: list[int], length: int, keep: int, discard: int = 0) -> list[int]:
    """Read anew each time the window is full, by requests of their own."""
    told, more = _speaker(tiny, tuple(prompt), keep, discard)
    while len(told) < length:
        told += next(more)
    return told[:length]


@cache
def _speaker(
    tiny: Path, prompt: tuple[int, ...], keep: int, discard: int
) -> tuple[list[int], Iterator[list[int]]]:
    """What was said so far, for all tests, and what goes on."""
    return [], _said(Driver(tiny), list(prompt), len(prompt) if keep < 0 else keep, discard)


def _said(driver: Driver, context: list[int], kept: int, discard: int) -> Iterator[list[int]]:
    """All that fits the window, again and again."""
    for turn in itertools.count():
        said = driver.alone(submit(f"e{turn}", context, WINDOW - len(context)))
        yield said
        context += said
        asked = discard if discard else (len(context) - kept) // 2
        gone = min(max(asked, WINDOW // LEAST_SHARE), len(context) - kept - 1)
        context = [*context[:kept], *context[kept + gone :]]


# The rule.


@pytest.mark.parametrize(
    ("window", "length", "due"),
    [(0, 10**6, False), (128, 126, False), (128, 127, True), (128, 128, True)],
)
def test_row_is_due_when_no_place_is_left(window: int, length: int, due: bool) -> None:
    assert ShiftRules(window=window, keep=0).is_due(length) is due


@pytest.mark.parametrize(
    ("keep", "tokens", "prompt", "left"),
    [
        pytest.param(0, 10, 4, [5, 6, 7, 8, 9], id="none"),
        pytest.param(3, 10, 4, [0, 1, 2, 6, 7, 8, 9], id="three"),
        pytest.param(-1, 10, 4, [0, 1, 2, 3, 7, 8, 9], id="prompt"),
        pytest.param(8, 10, 4, [0, 1, 2, 3, 4, 5, 6, 7, 9], id="all-but-two"),
        pytest.param(9, 10, 4, None, id="all-but-one"),
        pytest.param(50, 10, 4, None, id="more-than-there-is"),
        pytest.param(-1, 10, 10, None, id="prompt-is-all"),
    ],
)
def test_newer_half_behind_what_is_kept_stays(
    keep: int, tokens: int, prompt: int, left: list[int] | None
) -> None:
    found = ShiftRules(window=128, keep=keep).left_of(tuple(range(tokens)), prompt)
    assert found == (None if left is None else tuple(left))


@pytest.mark.parametrize(
    ("keep", "discard", "left"),
    [
        pytest.param(None, 0, [0, 1, 6, 7, 8, 9], id="the-servers"),
        pytest.param(0, 0, [5, 6, 7, 8, 9], id="none-kept"),
        pytest.param(-1, 0, [0, 1, 2, 3, 7, 8, 9], id="prompt-kept"),
        pytest.param(None, 3, [0, 1, 5, 6, 7, 8, 9], id="three-gone"),
        pytest.param(3, 1, [0, 1, 2, 4, 5, 6, 7, 8, 9], id="both"),
        pytest.param(3, 6, [0, 1, 2, 9], id="all-but-the-last-gone"),
        pytest.param(3, 99, [0, 1, 2, 9], id="more-than-there-is"),
        pytest.param(9, 1, None, id="only-the-last-could-go"),
    ],
)
def test_what_a_request_wants_goes_before_the_servers(
    keep: int | None, discard: int, left: list[int] | None
) -> None:
    rules = ShiftRules(window=32, keep=2)
    found = rules.left_of(tuple(range(10)), 4, keep=keep, discard=discard)
    assert found == (None if left is None else tuple(left))


@given(
    keep=st.integers(-1, 80),
    tokens=st.integers(1, 80),
    prompt=st.integers(1, 80),
    own=st.none() | st.integers(-1, 80),
    discard=st.integers(0, 80),
)
def test_what_is_left_is_shorter_and_ends_alike(
    keep: int, tokens: int, prompt: int, own: int | None, discard: int
) -> None:
    all_of_it = tuple(range(tokens))
    rules = ShiftRules(window=80, keep=keep)
    left = rules.left_of(all_of_it, min(prompt, tokens), keep=own, discard=discard)
    if left is not None:
        assert len(left) < tokens
        assert left[-1] == tokens - 1
        assert list(left) == sorted(left)


# Rows.


@pytest.mark.parametrize("lookahead", [True, False], ids=["ahead", "in-step"])
@pytest.mark.parametrize("keep", [0, 4, -1])
def test_row_says_what_one_says_that_reads_what_is_left(
    tiny: Path, keep: int, lookahead: bool
) -> None:
    driver = shifting(tiny, keep, lookahead=lookahead)
    driver.run(submit("one", PROMPT, 140))
    assert driver.tokens("one") == expected(tiny, PROMPT, 140, keep)
    assert driver.reason("one") is FinishReason.LENGTH
    assert driver.finish("one").usage.completion_tokens == 140
    assert driver.stats.kv_blocks == 0


def test_rows_of_a_batch_forget_each_as_it_wants(tiny: Path) -> None:
    driver = shifting(tiny, keep=4)
    wanted = [(None, 0), (-1, 0), (0, 20), (10, 50)]
    driver.run(
        *(
            submit(f"r{n}", PROMPT[n:], 140, keep=keep, discard=discard)
            for n, (keep, discard) in enumerate(wanted)
        )
    )
    for n, (keep, discard) in enumerate(wanted):
        kept = 4 if keep is None else keep
        assert driver.tokens(f"r{n}") == expected(tiny, PROMPT[n:], 140, kept, discard)


def test_no_window_is_read_anew_for_every_token() -> None:
    rules = ShiftRules(window=4096, keep=0)
    left = rules.left_of(tuple(range(4095)), 10, discard=1)
    assert left is not None
    assert len(left) == 4095 - 64


def test_window_that_may_forget_one_token_at_a_time_goes_on(tiny: Path) -> None:
    driver = shifting(tiny, parallel=1)
    driver.run(submit("one", PROMPT, 80, discard=1))
    assert driver.tokens("one") == expected(tiny, PROMPT, 80, 4, 1)


def test_without_shift_nothing_is_forgotten_whatever_is_wanted(tiny: Path) -> None:
    driver = Driver(tiny, ctx_size=4 * WINDOW)
    driver.run(submit("one", PROMPT, 200, keep=5, discard=5))
    assert driver.reason("one") is FinishReason.CONTEXT
    assert len(driver.tokens("one")) == WINDOW - len(PROMPT) - 1


def test_rows_shift_each_in_its_own_time(tiny: Path) -> None:
    driver = shifting(tiny, prefill_chunk_size=32)
    rows = [submit(f"r{n}", PROMPT[: 34 + 13 * n], 100) for n in range(3)]
    driver.run(*rows)
    for n, row in enumerate(rows):
        assert driver.tokens(row.id) == expected(tiny, PROMPT[: 34 + 13 * n], 100, 4)


def test_nothing_left_to_forget_ends_the_row(tiny: Path) -> None:
    driver = shifting(tiny, keep=127)
    driver.run(submit("one", PROMPT, 200, cache=TAG))
    assert driver.reason("one") is FinishReason.CONTEXT
    assert len(driver.tokens("one")) == WINDOW - len(PROMPT)
    assert driver.stats.kv_blocks == 0


def test_choices_that_wait_their_turn_each_end_once(tiny: Path) -> None:
    driver = shifting(tiny, keep=127, parallel=1)
    driver.run(submit("n", PROMPT, 200, choices=2, temperature=1.0, cache=TAG))
    for choice in range(2):
        assert driver.reason("n", choice) is FinishReason.CONTEXT
        assert len(driver.tokens("n", choice)) == WINDOW - len(PROMPT)
    assert driver.stats.kv_blocks == 0


def test_pause_is_told_while_what_is_left_is_read(tiny: Path) -> None:
    driver = shifting(tiny)
    driver.run(submit("one", PROMPT, 100))
    assert driver.events("one").count(RowPaused("one")) == 1


def test_choices_shift_on_their_own(tiny: Path) -> None:
    driver = shifting(tiny)
    request = submit("n", PROMPT, 80, choices=3, temperature=1.0, seed=3)
    driver.run(request)
    for choice in range(3):
        alone = shifting(tiny)
        alone.run(submit("a", PROMPT, 80, temperature=1.0, seed=3 + choice))
        assert driver.tokens("n", choice) == alone.tokens("a")
    assert len([e for e in driver.events("n") if isinstance(e, RowFinished)]) == 1


def test_preempted_after_it_has_forgotten(tiny: Path) -> None:
    driver = shifting(tiny, parallel=1, preemption="longest-first")
    driver.tick(submit("low", PROMPT, 150, lane=Lane.LOW, cache=TAG))
    until(driver, lambda: len(driver.tokens("low")) > 90)
    driver.run(submit("high", PROMPT[:5], 4, lane=Lane.HIGH))
    assert driver.stats.preemptions == 1
    assert driver.tokens("low") == expected(tiny, PROMPT, 150, 4)


@pytest.mark.parametrize("chunk", [16, 2048])
def test_cancelled_around_a_shift(tiny: Path, chunk: int) -> None:
    """Before it, while what is left is read, and after it."""
    driver = shifting(tiny, prefill_chunk_size=chunk)
    driver.tick(submit("busy", PROMPT[:10], 100))
    driver.tick(*(submit(f"c{n}", PROMPT, 150, cache=TAG) for n in range(3)))
    for n, at in enumerate((66, 68, 72)):
        until(driver, lambda: len(driver.tokens(f"c{n}")) >= at)  # noqa: B023
        driver.tick(Cancel(id=f"c{n}"))
    driver.run()
    assert driver.stats.kv_blocks == 0
    assert driver.tokens("busy") == expected(tiny, PROMPT[:10], 100, 4)


# The cache.


def test_row_that_has_forgotten_leaves_its_prompt_alone(tiny: Path) -> None:
    driver = shifting(tiny)
    driver.run(submit("one", PROMPT, 200, cache=TAG))
    assert stats(driver)["entries"] == 1
    driver.run(submit("two", [*PROMPT, 3], 12, cache=TAG))
    assert reused(driver, "two") == 32
    kept = [*PROMPT[:4], *[*PROMPT, *driver.tokens("one")][:WINDOW][66:]]
    driver.run(submit("three", kept, 12, cache=TAG))
    assert reused(driver, "three") == 0


def test_chunks_of_what_is_left_are_not_kept_when_it_is_cancelled(tiny: Path) -> None:
    driver = shifting(tiny, prefill_chunk_size=16)
    driver.tick(submit("one", PROMPT, 150, cache=TAG))
    until(driver, lambda: RowPaused("one") in driver.events("one"))
    driver.tick()
    driver.tick()
    driver.run(Cancel(id="one"))
    assert stats(driver)["entries"] == 1


def test_kept_prompt_is_not_read_again_at_a_shift(tiny: Path) -> None:
    """The prompt stays, and the cache has it."""
    driver = shifting(tiny, keep=-1)
    driver.tick(submit("one", PROMPT, 100, cache=TAG))
    until(driver, lambda: len(driver.tokens("one")) > 60)
    before = driver.stats.prompt_tokens
    driver.run()
    assert driver.stats.prompt_tokens - before == 128 - 34 - 1 - 32
    assert driver.tokens("one") == expected(tiny, PROMPT, 100, -1)
    assert reused(driver, "one") == 0  # as it was when it began


def test_shift_beside_a_reset(tiny: Path) -> None:
    driver = shifting(tiny)
    driver.tick(submit("one", PROMPT, 150, cache=TAG))
    until(driver, lambda: len(driver.tokens("one")) > 60)
    driver.run(Ask(id="r", question=Question.CACHE_RESET))
    assert driver.tokens("one") == expected(tiny, PROMPT, 150, 4)
    assert stats(driver)["entries"] == 0


def test_shift_within_a_kv_budget(tiny: Path) -> None:
    block = 32 * 2 * 2 * 16 * 4
    driver = shifting(tiny, cache={"kv_budget": 16 * block, "kv_watermark": 0.0})
    rows = [submit(f"r{n}", PROMPT[n:], 100, cache=CacheTag(session=str(n))) for n in range(2)]
    driver.run(*rows)
    for n, row in enumerate(rows):
        assert driver.tokens(row.id) == expected(tiny, PROMPT[n:], 100, 4)
    assert driver.stats.kv_blocks == 0


def test_endless_answer_takes_no_more_memory_than_its_window(tiny: Path) -> None:
    """A million tokens of KV are 512 MB."""
    driver = shifting(tiny, memory_budget=64 * 2**20)
    driver.tick(submit("one", PROMPT, 10**6))
    until(driver, lambda: len(driver.tokens("one")) > 5)
    driver.run(Cancel(id="one"))
    assert driver.stats.kv_blocks == 0


def test_without_shift_the_answer_ends_where_the_window_does(tiny: Path) -> None:
    driver = Driver(tiny, ctx_size=4 * WINDOW)
    driver.run(submit("one", PROMPT, 200, cache=TAG))
    assert driver.reason("one") is FinishReason.CONTEXT
    assert len(driver.tokens("one")) == WINDOW - len(PROMPT) - 1
    driver.run(submit("two", [*PROMPT, 3], 12, cache=TAG))
    assert_cold(driver, submit("two", []), [*PROMPT, 3])
