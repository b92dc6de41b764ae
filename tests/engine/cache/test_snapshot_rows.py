"""Whole states of rows through the worker, for families whose KV cannot be cut: what is kept
when, what is found, and that nobody can tell from the answer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, CacheTag, Reject, Source
from mlxcel.core.request import Lane
from mlxcel.engine.cache.columns import ColumnKeeping
from mlxcel.engine.cache.states_kept import StateKeeping
from mlxcel.link.messages import Ask, Cancel, Question, Warm, pack_tokens
from tests.engine.cache.warm_rows import no_memory
from tests.engine.driver import Driver, submit
from tests.engine.families_driven import driven, said_cold
from tests.engine.test_failures import failing, is_prefill, is_step
from tests.tiny.families import (
    FALCON_H1,
    GEMMA3,
    GEMMA4,
    GPT_OSS,
    LLAMA4,
    MAMBA2,
    NEMOTRON_H,
    QWEN3_5,
)

pytestmark = pytest.mark.slow

PROMPT = [1 + (7 * i) % 90 for i in range(100)]
BOUNDARY = 90
TAG = CacheTag(boundary=BOUNDARY)
ALL = [NEMOTRON_H, MAMBA2, QWEN3_5, FALCON_H1, GEMMA3, GEMMA4, GPT_OSS, LLAMA4]
KINDS = [GEMMA3, NEMOTRON_H, MAMBA2]
"""Windows; recurrent state beside attention, of one slot; recurrent state alone."""
Make = Callable[..., Driver]


@pytest.fixture
def make(tiny: Path, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Drivers of one network."""
    with driven(request.param):
        yield lambda **options: Driver(tiny, **options)


def of(*configs: dict[str, Any]) -> pytest.MarkDecorator:
    """Where it is all of them, those that another one stands for are slow tests."""
    quick = [*KINDS, LLAMA4] if len(configs) == len(ALL) else configs
    params = [
        pytest.param(c, id=c["model_type"], marks=() if c in quick else pytest.mark.slow)
        for c in configs
    ]
    return pytest.mark.parametrize("make", params, indirect=True)


def report(driver: Driver, name: str) -> CacheReport:
    found = driver.finish(name).timings.cache
    assert found is not None
    return found


def assert_same_cold(driver: Driver, name: str, prompt: list[int], length: int = 12) -> None:
    """The answer of a warm request is what it is without any cache."""
    assert driver.tokens(name) == said_cold(driver, prompt, length)


def kept(driver: Driver) -> list[tuple[str, int]]:
    keeping = driver.worker._cache.keeping
    assert isinstance(keeping, StateKeeping)
    return sorted((entry.origin, entry.length) for entry in keeping.store._all)


@of(*ALL)
def test_next_turn_goes_on_from_the_boundary(make: Make) -> None:
    driver = make()
    assert driver.info.keeps_snapshots
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    turn = [*PROMPT[:BOUNDARY], 91, 92, 93, 94]
    driver.run(submit("two", turn, 12, cache=CacheTag(boundary=93)))
    found = report(driver, "two")
    assert (found.status, found.reused, found.source) == (
        CacheStatus.HIT,
        BOUNDARY,
        Source.SNAPSHOT,
    )
    assert_same_cold(driver, "two", turn)
    assert driver.finish("two").usage.cached_tokens == BOUNDARY


@of(*ALL)
def test_next_turn_goes_on_from_the_end_of_the_answer(make: Make) -> None:
    driver = make()
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    turn = [*PROMPT, *driver.tokens("one"), 91, 92]
    driver.run(submit("two", turn, 12, cache=CacheTag(boundary=113)))
    assert report(driver, "two").reused == 111  # the last token was said, not read
    assert_same_cold(driver, "two", turn)
    assert kept(driver) == [("boundary", 113), ("completion", 125)]


@of(*KINDS)
@pytest.mark.parametrize("lookahead", [True, False], ids=["ahead", "in-step"])
def test_end_of_text_that_was_read_ahead_is_part_of_the_state(make: Make, lookahead: bool) -> None:
    driver = make(lookahead=lookahead)
    driver.run(submit("free", PROMPT, 12))
    free = driver.tokens("free")
    end = next(token for token in free[3:] if free.index(token) >= 3)
    driver.run(submit("one", PROMPT, 20, cache=TAG, eos=(end,)))
    said = driver.tokens("one")
    assert said == free[: free.index(end)]
    turn = [*PROMPT, *said, end, 91, 92]
    driver.run(submit("two", turn, 12, cache=CacheTag(boundary=len(turn) - 1)))
    assert report(driver, "two").reused == len(PROMPT) + len(said) + lookahead
    assert_same_cold(driver, "two", turn)


@of(*KINDS)
def test_preempted_row_comes_back_to_its_state(make: Make) -> None:
    driver = make(parallel=1, preemption="longest-first")
    driver.tick(submit("low", PROMPT, 40, lane=Lane.LOW, cache=TAG))
    while len(driver.tokens("low")) < 10:
        driver.tick()
    before = driver.stats.prompt_tokens
    driver.run(submit("high", [3, 4, 5], 4, lane=Lane.HIGH, cache=CacheTag(session="other")))
    assert driver.stats.preemptions == 1
    assert driver.stats.prompt_tokens - before == 2  # those of the other
    assert_same_cold(driver, "low", PROMPT, 40)


@of(*KINDS)
def test_cancelled_row_leaves_its_state(make: Make) -> None:
    driver = make()
    driver.tick(submit("one", PROMPT, 40, cache=TAG))
    while len(driver.tokens("one")) < 10:
        driver.tick()
    said = driver.tokens("one")
    driver.run(Cancel(id="one"))
    turn = [*PROMPT, *said, 91]
    driver.run(submit("two", turn, 12, cache=TAG))
    assert report(driver, "two").reused == len(PROMPT) + len(said)
    assert_same_cold(driver, "two", turn)


@of(*KINDS)
def test_cancelled_prompt_leaves_what_was_read_of_it(make: Make) -> None:
    driver = make(prefill_chunk_size=32)
    driver.tick(submit("one", PROMPT, 12, cache=TAG))
    driver.tick()
    driver.run(Cancel(id="one"))
    assert kept(driver) == [("prompt", 64)]
    driver.run(submit("two", PROMPT, 12, cache=TAG))
    assert report(driver, "two").reused == 64
    assert_same_cold(driver, "two", PROMPT)


@of(*KINDS)
def test_boundary_is_kept_between_chunks(make: Make) -> None:
    driver = make(prefill_chunk_size=32)
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    assert kept(driver) == [("boundary", BOUNDARY), ("completion", 111)]
    assert driver.stats.prefill_chunks == 4  # 32, 64, 90, 99
    assert_same_cold(driver, "one", PROMPT)


@of(*KINDS)
def test_without_boundaries_the_end_of_the_prompt_is_kept(make: Make) -> None:
    driver = make(cache={"snapshot": {"boundary": False}})
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    assert kept(driver) == [("completion", 111), ("prompt", 99)]
    driver.run(submit("two", [*PROMPT, 91], 12, cache=TAG))
    assert report(driver, "two").reused == 99
    assert_same_cold(driver, "two", [*PROMPT, 91])


@of(*KINDS)
def test_shifted_row_says_what_is_left_and_leaves_no_state(make: Make) -> None:
    driver = make(ctx_size=128, parallel=1, cache={"context_shift": True, "keep": 4})
    driver.run(submit("one", PROMPT, 60, cache=TAG))
    first = [*PROMPT, *driver.tokens("one")][:128]
    left = [*first[:4], *first[4 + (128 - 4) // 2 :]]
    said = driver.tokens("one")[28:]
    assert said == make().alone(submit("alone", left, len(said)))
    assert kept(driver) == [("boundary", BOUNDARY)]


@of(*KINDS)
def test_kept_states_do_not_change_with_those_who_go_on_from_them(make: Make) -> None:
    """Three rows at once, and one after them."""
    driver = make()
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    turns = [[*PROMPT[:BOUNDARY], 91 + n, 5, 6 + n] for n in range(3)]
    rows = [submit(f"r{n}", turn, 20, cache=TAG) for n, turn in enumerate(turns)]
    driver.run(*rows)
    driver.run(submit("again", turns[0], 20, cache=TAG))
    for n, turn in enumerate(turns):
        assert report(driver, f"r{n}").reused == BOUNDARY
        assert_same_cold(driver, f"r{n}", turn, 20)
    assert driver.tokens("again") == driver.tokens("r0")


@of(GEMMA3, MAMBA2)
def test_state_that_was_adopted_is_not_the_oldest(make: Make) -> None:
    driver = make(cache={"snapshot": {"max_entries": 2}})
    driver.run(submit("a", PROMPT, 4, cache=TAG))
    assert kept(driver) == [("boundary", BOUNDARY), ("completion", 103)]
    for n in range(2):
        driver.run(submit(f"b{n}", [*PROMPT[:BOUNDARY], 91 + n, 92], 4, cache=TAG))
        assert report(driver, f"b{n}").reused == BOUNDARY
        assert kept(driver) == [("boundary", BOUNDARY), ("completion", 95)]


@of(GEMMA3, MAMBA2)
def test_choices_each_leave_a_state(make: Make) -> None:
    driver = make()
    driver.run(submit("one", PROMPT, 12, choices=2, temperature=1.0, seed=4, cache=TAG))
    said = [driver.tokens("one", choice) for choice in range(2)]
    assert said[0] != said[1]
    for choice, answer in enumerate(said):
        turn = [*PROMPT, *answer, 91]
        driver.run(submit(f"t{choice}", turn, 12, cache=TAG))
        assert report(driver, f"t{choice}").reused == 111
        assert_same_cold(driver, f"t{choice}", turn)


@of(*KINDS)
def test_diverged_turn_says_so(make: Make) -> None:
    driver = make()
    driver.run(submit("one", PROMPT, 12, cache=CacheTag()))
    turn = [*PROMPT[:40], 99, *PROMPT[41:]]
    driver.run(submit("two", turn, 12, cache=CacheTag()))
    found = report(driver, "two")
    if found.status is CacheStatus.MISS:
        assert found.reason is Reject.SNAPSHOT_DIVERGED
    assert found.diverged is not None
    assert found.diverged.at == 40
    assert_same_cold(driver, "two", turn)


@of(*KINDS)
@pytest.mark.parametrize(
    ("is_hit", "lengths"),
    [
        pytest.param(is_prefill, [BOUNDARY, 139], id="prefill"),
        pytest.param(is_step, [BOUNDARY], id="step"),
    ],
)
def test_failed_row_leaves_no_state_of_what_failed(
    make: Make, is_hit: Callable[[Any], bool], lengths: list[int]
) -> None:
    driver = make()
    driver.tick(submit("one", PROMPT, 40, cache=TAG))
    while len(driver.tokens("one")) < 3:
        driver.tick()
    with failing(driver, is_hit):
        driver.run(submit("bad", [9, *PROMPT], 4, cache=CacheTag(boundary=91)))
    assert driver.failure("bad") is not None
    assert [length for _, length in kept(driver) if length != 91] == lengths
    turn = [*PROMPT, 91]
    driver.run(submit("two", turn, 12, cache=TAG))
    assert_same_cold(driver, "two", turn)


@of(GEMMA3, MAMBA2)
def test_state_that_turns_out_not_to_be_there_is_dropped(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = make()
    driver.tick(submit("one", PROMPT, 4, cache=TAG))
    assert kept(driver) == [("boundary", BOUNDARY)]
    keeping = driver.worker._cache.keeping
    assert keeping is not None
    keeping.begin_turn()
    with monkeypatch.context() as patch:
        patch.setattr("mlxcel.engine.cache.states_kept.mx.eval", no_memory)
        keeping.end_turn(is_idle=False)
    assert any("a state that was to be kept is lost" in line for line in caplog.messages)
    assert kept(driver) == []
    driver.run(submit("two", [*PROMPT[:BOUNDARY], 91], 12, cache=TAG))
    assert_same_cold(driver, "two", [*PROMPT[:BOUNDARY], 91])


@of(*KINDS)
def test_state_of_a_row_that_left_before_the_step_that_fails_is_not_kept(make: Make) -> None:
    """It may rest on it."""
    driver = make(parallel=2)
    driver.tick(submit("one", PROMPT, 40, cache=TAG))
    while len(driver.tokens("one")) < 5:
        driver.tick()
    driver.tick(submit("other", PROMPT[:9], 40))
    has_room = driver.stats.slots > 1
    with failing(driver, is_step):
        driver.tick(Cancel(id="one"))
    assert (driver.stats.active, kept(driver)) == (0, [("boundary", BOUNDARY)]) or not has_room
    driver.run(submit("two", [*PROMPT, *driver.tokens("one")], 12, cache=TAG))
    assert_same_cold(driver, "two", [*PROMPT, *driver.tokens("one")])


@of(*KINDS)
def test_reset_in_the_middle_of_an_answer(make: Make) -> None:
    driver = make()
    driver.tick(submit("one", PROMPT, 40, cache=TAG))
    while len(driver.tokens("one")) < 5:
        driver.tick()
    driver.run(Ask(id="r", question=Question.CACHE_RESET))
    (reply,) = [reply for frame in driver.frames for reply in frame.replies]
    assert reply.value["freed_entries"] == 1
    assert kept(driver) == [("completion", 139)]
    assert_same_cold(driver, "one", PROMPT, 40)


@of(*KINDS)
def test_warm_up_keeps_all_it_was_given(make: Make) -> None:
    """The front marks the end of it as the boundary."""
    driver = make(prefill_chunk_size=32)
    driver.run(Warm(tokens=pack_tokens(PROMPT), tag=CacheTag(boundary=len(PROMPT))))
    assert kept(driver) == [("prompt", 99)]
    turn = [*PROMPT, 91, 92]
    driver.run(submit("two", turn, 12, cache=TAG))
    assert report(driver, "two").reused == 99
    assert_same_cold(driver, "two", turn)


@of(*KINDS)
def test_warm_up_of_a_whole_slot_keeps_the_boundary_inside_it_too(make: Make) -> None:
    driver = make()
    driver.run(Warm(tokens=pack_tokens(PROMPT), tag=TAG))
    assert kept(driver) == [("boundary", BOUNDARY), ("prompt", 99)]


@pytest.mark.parametrize("enabled", [True, False])
def test_model_of_plain_columns_keeps_no_snapshots(tiny: Path, enabled: bool) -> None:
    driver = Driver(tiny, cache={"prompt": {"enabled": enabled}})
    assert not driver.info.keeps_snapshots
    assert isinstance(driver.worker._cache.keeping, ColumnKeeping) is enabled


@of(GEMMA3)
@pytest.mark.parametrize(
    "cache",
    [{"prompt": {"enabled": False}}, {"snapshot": {"capacity_bytes": 0}}],
    ids=["off", "no-room"],
)
def test_without_snapshots_nothing_is_said_of_them(make: Make, cache: dict[str, Any]) -> None:
    driver = make(cache=cache)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    assert not driver.info.keeps_snapshots
    assert driver.finish("one").timings.cache is None
    assert driver.finish("one").usage.cached_tokens is None
