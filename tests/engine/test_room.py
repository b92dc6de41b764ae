"""Slots and KV blocks, through the worker: who waits, who makes room, and what is counted."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxcel.core.request import Lane
from mlxcel.link.messages import RowEnded, RowEvent, RowPaused, RowTokens, Submit
from tests.engine import driver as driving
from tests.engine.driver import Driver, submit
from tests.tiny.families import DEEPSEEK_V3, GEMMA3, NEMOTRON_H, QWEN3_MOE, network_of

BLOCK = 32 * 2 * 2 * 16 * 4
"""Bytes of a KV block of the tiny model, of which a row takes one a layer for each 32 tokens:
2 for 1 to 32 tokens, 4 for 33 to 64, 6 for 65 to 96."""


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(7 * i * (seed + 3) + seed) % 256 for i in range(length)]


def budget(blocks: int, watermark: float = 0.0) -> dict[str, Any]:
    return {"kv_budget": blocks * BLOCK, "kv_watermark": watermark}


@lru_cache
def _solo(tiny: Path) -> Driver:
    return Driver(tiny, no_batch=True, lookahead=False)


def alone(tiny: Path, request: Submit) -> list[list[int]]:
    """What each choice says when nothing else runs, with as much room as it likes."""
    driver = _solo(tiny)
    driver.frames.clear()
    driver.run(request)
    return [driver.tokens(request.id, choice) for choice in range(request.choices)]


def assert_as_alone(driver: Driver, tiny: Path, *requests: Submit) -> None:
    for request in requests:
        said = [driver.tokens(request.id, choice) for choice in range(request.choices)]
        assert said == alone(tiny, request), request.id
        driver.finish(request.id)
    assert driver.stats.kv_blocks == 0


def events(driver: Driver) -> list[RowEvent]:
    return [event for frame in driver.frames for event in frame.events]


def ends(driver: Driver) -> list[tuple[str, int]]:
    return [(event.id, event.choice) for event in events(driver) if isinstance(event, RowEnded)]


def story(driver: Driver, name: str) -> list[str]:
    """The kinds of a request's events in order; tokens that follow one another count once."""
    kinds = [type(event).__name__ for event in driver.events(name)]
    return [kind for i, kind in enumerate(kinds) if kind != "RowTokens" or kinds[i - 1] != kind]


def until(driver: Driver, is_so: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_so():
            return
        driver.tick()
    raise AssertionError("it never came to that")


# Choices.


@pytest.mark.parametrize("watermark", [0.0, 0.01, 0.5])
def test_choices_run_one_after_the_other_where_one_row_fits(tiny: Path, watermark: float) -> None:
    request = submit("n", prompt(40), 10, choices=3, temperature=1.0, seed=5)
    driver = Driver(tiny, cache=budget(4, watermark))
    driver.run(request)
    assert ends(driver) == [("n", 0), ("n", 1), ("n", 2)]
    assert max(frame.stats.active for frame in driver.frames) == 1
    assert max(frame.stats.kv_blocks for frame in driver.frames) == 4
    assert_as_alone(driver, tiny, request)
    assert story(driver, "n") == [
        *("RowAccepted", "RowStarted", "RowTokens", "RowEnded"),
        *("RowPaused", "RowTokens", "RowEnded"),
        *("RowPaused", "RowTokens", "RowEnded", "RowFinished"),
    ]


def test_two_of_three_choices_run_together_where_two_rows_fit(tiny: Path) -> None:
    request = submit("n", prompt(40), 10, choices=3, temperature=1.0, seed=5)
    driver = Driver(tiny, cache=budget(9))
    driver.run(request)
    assert max(frame.stats.active for frame in driver.frames) == 2
    assert driver.stats.prompt_tokens == 39
    assert_as_alone(driver, tiny, request)


@pytest.mark.parametrize("preemption", [None, "longest-first", "lowest-priority"])
def test_choices_that_wait_keep_nobody_from_running(tiny: Path, preemption: str | None) -> None:
    low = submit("a", prompt(40), 12, choices=4, temperature=1.0, lane=Lane.LOW)
    high = submit("h", prompt(70), 8, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=1, preemption=preemption, cache=budget(8, 0.01))
    driver.tick(low)
    driver.tick()
    driver.run(high)
    # With preemption at once; without it, high goes before the choices that wait.
    first = [("h", 0), ("a", 0)] if preemption else [("a", 0), ("h", 0)]
    assert ends(driver) == [*first, ("a", 1), ("a", 2), ("a", 3)]
    assert driver.stats.preemptions == (preemption is not None)
    assert_as_alone(driver, tiny, low, high)


# Who makes room.


@pytest.mark.parametrize("policy", ["longest-first", "lowest-priority"])
def test_one_row_makes_room_in_the_budget_though_a_slot_is_free(tiny: Path, policy: str) -> None:
    low = [submit(f"l{i}", prompt(40, i), 20, lane=Lane.LOW) for i in range(2)]
    high = submit("h", prompt(40, 3), 20, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=3, preemption=policy, cache=budget(8))
    driver.tick(*low)
    for _ in range(3):
        driver.tick()
    assert driver.stats.active == 2
    driver.tick(high)
    assert len(driver.tokens("h")) == 1
    assert driver.stats.active == 2
    driver.run()
    assert driver.stats.preemptions == 1
    assert_as_alone(driver, tiny, *low, high)


@pytest.mark.parametrize(
    ("watermark", "needed"),
    [
        pytest.param(0.0, 70, id="too-few-blocks"),
        # 8 blocks but for 2 of the important row, 4 of the prompt and 2.1 to be kept.
        pytest.param(0.26, 40, id="watermark-is-in-the-way"),
    ],
)
def test_nobody_is_driven_out_for_nothing(tiny: Path, watermark: float, needed: int) -> None:
    rows = [
        submit("h", prompt(12), 15, lane=Lane.HIGH),
        submit("l", prompt(12, 1), 15, lane=Lane.LOW),
        submit("h2", prompt(12, 2), 15, lane=Lane.HIGH),
    ]
    waiting = submit("n", prompt(needed, 3), 10)
    fits = {0.0: 3, 0.26: 2}[watermark]
    driver = Driver(tiny, parallel=4, preemption="longest-first", cache=budget(8, watermark))
    for row in rows[:fits]:
        driver.tick(row)
    driver.tick(waiting)
    driver.run(limit=200)
    assert driver.stats.preemptions == 0
    assert ends(driver)[-1] == ("n", 0)
    assert_as_alone(driver, tiny, *rows[:fits], waiting)


def test_rows_decode_while_a_prompt_waits_for_the_watermark(tiny: Path) -> None:
    """The last block would do, were it not to be kept free: the row that runs is more important,
    and must not stand still meanwhile."""
    high = submit("h", prompt(20), 10, lane=Lane.HIGH)
    normal = submit("n", prompt(70), 10)
    driver = Driver(tiny, preemption="longest-first", cache=budget(8, 0.01))
    driver.tick(high)
    driver.tick(normal)
    driver.tick()
    assert (driver.stats.decode_steps, len(driver.tokens("h"))) == (3, 2)
    driver.run(limit=100)
    assert ends(driver) == [("h", 0), ("n", 0)]
    assert_as_alone(driver, tiny, high, normal)


@pytest.mark.parametrize(
    ("watermark", "together"),
    [
        pytest.param(0.0, 2, id="none"),
        pytest.param(0.25, 2, id="just-kept"),
        pytest.param(0.26, 1, id="just-not-kept"),
    ],
)
def test_watermark_counts_to_the_block(tiny: Path, watermark: float, together: int) -> None:
    """8 blocks: 4 for the first row, 2 for the second, 2 to be kept at a quarter."""
    rows = [submit("a", prompt(40), 12), submit("b", prompt(20, 1), 6)]
    driver = Driver(tiny, cache=budget(8, watermark))
    driver.tick(rows[0])
    driver.tick(rows[1])
    assert driver.stats.active == together
    driver.run()
    assert_as_alone(driver, tiny, *rows)


def test_watermark_does_not_count_while_nothing_decodes(tiny: Path) -> None:
    request = submit("whole", prompt(120), 5)
    driver = Driver(tiny, cache=budget(8, 0.5))
    driver.tick(request)
    assert driver.stats.kv_blocks == 8
    driver.run()
    assert_as_alone(driver, tiny, request)


def test_victim_that_could_never_come_back_fails_and_later_prompts_run(tiny: Path) -> None:
    """64 tokens are in its KV, which is all there is; with the one just said it has 65."""
    low, later = submit("l", prompt(60), 30, lane=Lane.LOW), submit("l2", prompt(9), 3)
    high = submit("h", prompt(20, 1), 4, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=1, preemption="longest-first", lookahead=False, cache=budget(4))
    driver.tick(low)
    until(driver, lambda: len(driver.tokens("l")) == 4)  # the fifth is in flight
    driver.run(high, later, limit=200)
    error = driver.failure("l").error
    assert (error.code, error.status) == ("server_busy", 503)
    assert story(driver, "l") == ["RowAccepted", "RowStarted", "RowTokens", "RowFailed"]
    assert driver.tokens("l") == alone(tiny, low)[0][:5]
    assert driver.stats.preemptions == 0
    assert ends(driver) == [("h", 0), ("l2", 0)]
    assert_as_alone(driver, tiny, high, later)


def test_only_less_important_rows_make_room(tiny: Path) -> None:
    """Though a row of the same lane has said more."""
    normal, low = submit("n", prompt(9), 30), submit("l", prompt(9, 1), 12, lane=Lane.LOW)
    other = submit("n2", prompt(5, 2), 4)
    driver = Driver(tiny, parallel=2, preemption="longest-first")
    driver.tick(normal)
    for _ in range(4):
        driver.tick()
    driver.tick(low)
    driver.run(other)
    assert ends(driver) == [("n2", 0), ("l", 0), ("n", 0)]
    assert (story(driver, "n").count("RowPaused"), story(driver, "l").count("RowPaused")) == (0, 1)
    assert_as_alone(driver, tiny, normal, low, other)


@pytest.mark.parametrize("blocks", [None, 8], ids=["slots", "blocks"])
def test_no_batch_never_preempts(tiny: Path, blocks: int | None) -> None:
    cache = budget(blocks, 0.01) if blocks else {}
    rows = [
        submit("low", prompt(40), 12, lane=Lane.LOW),
        submit("high", prompt(70), 3, lane=Lane.HIGH),
    ]
    driver = Driver(tiny, no_batch=True, preemption="longest-first", cache=cache)
    driver.tick(rows[0])
    driver.tick()
    driver.run(rows[1])
    assert ends(driver) == [("low", 0), ("high", 0)]
    assert driver.stats.preemptions == 0
    assert story(driver, "low").count("RowPaused") == 0
    assert_as_alone(driver, tiny, *rows)


# What comes back comes first.


def test_victim_comes_back_before_others_of_its_lane(tiny: Path) -> None:
    low = [submit(f"l{i}", prompt(9, i), 12, lane=Lane.LOW) for i in range(3)]
    high = submit("h", prompt(5, 2), 4, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=1, preemption="longest-first")
    driver.tick(*low)
    driver.tick()
    driver.run(high)
    assert ends(driver) == [("h", 0), ("l0", 0), ("l1", 0), ("l2", 0)]
    assert_as_alone(driver, tiny, *low, high)


def test_choices_that_wait_come_before_others_of_their_lane(tiny: Path) -> None:
    request = submit("n", prompt(9), 12, choices=3, temperature=1.0)
    others = [submit(f"o{i}", prompt(9, i), 12) for i in range(2)]
    driver = Driver(tiny, parallel=2)
    driver.run(others[0], request, others[1])
    assert ends(driver) == [("o0", 0), ("n", 0), ("n", 1), ("n", 2), ("o1", 0)]
    assert_as_alone(driver, tiny, request, *others)


def test_driven_out_choice_comes_before_the_choices_that_wait(tiny: Path) -> None:
    request = submit("n", prompt(9), 12, choices=2, temperature=1.0, lane=Lane.LOW)
    other = submit("o", prompt(9, 1), 3, lane=Lane.LOW)
    high = submit("h", prompt(5, 2), 4, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=1, preemption="lowest-priority")
    driver.tick(request, other)
    driver.tick()
    driver.run(high)
    assert ends(driver) == [("h", 0), ("n", 0), ("n", 1), ("o", 0)]
    assert_as_alone(driver, tiny, request, other, high)


# What is told of a pause.


def test_pause_is_told_when_the_last_row_is_driven_out(tiny: Path) -> None:
    low = submit("l", prompt(9), 12, lane=Lane.LOW)
    high = submit("h", prompt(5), 4, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=1, preemption="longest-first")
    driver.tick(low)
    driver.tick()
    driver.run(high)
    told = [event for event in events(driver) if isinstance(event, RowPaused | RowTokens)]
    at = told.index(RowPaused("l"))
    assert {event.id for event in told[:at]} == {"l"}
    assert [event.id for event in told[at + 1 : at + 5]] == ["h"] * 4
    assert story(driver, "l") == [
        *("RowAccepted", "RowStarted", "RowTokens", "RowPaused"),
        *("RowTokens", "RowEnded", "RowFinished"),
    ]
    assert "RowPaused" not in story(driver, "h")


def test_no_pause_is_told_while_another_choice_decodes(tiny: Path) -> None:
    low = submit("l", prompt(9), 30, choices=2, temperature=1.0, lane=Lane.LOW)
    high = submit("h", prompt(5), 4, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=2, preemption="longest-first")
    driver.tick(low)
    driver.tick()
    driver.run(high)
    assert driver.stats.preemptions == 1
    assert "RowPaused" not in story(driver, "l")
    assert_as_alone(driver, tiny, low, high)


# What is counted.


def test_counters_of_a_lone_prompt_in_chunks(tiny: Path) -> None:
    request = submit("long", prompt(81), 7)
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=2)
    driver.tick(request)
    assert (driver.stats.active, driver.stats.waiting, driver.stats.prefill_chunks) == (1, 0, 1)
    assert (driver.stats.kv_blocks, driver.stats.started) == (6, 1)
    for _ in range(3):
        driver.tick()
        assert driver.stats.active == 1
        assert driver.stats.decode_steps == 0
    assert not driver.tokens("long")
    driver.run()
    stats = driver.stats
    assert (stats.prompt_tokens, stats.prefill_chunks, stats.prefill_grants) == (80, 5, 0)
    assert (stats.decode_tokens, stats.decode_steps, stats.mixed_steps) == (7, 7, 0)
    assert (stats.started, stats.completed, stats.active) == (1, 1, 0)


@pytest.mark.parametrize("lookahead", [True, False], ids=["ahead", "in-step"])
def test_lone_row_takes_a_step_a_token(tiny: Path, lookahead: bool) -> None:
    driver = Driver(tiny, lookahead=lookahead)
    driver.run(submit("a", prompt(9), 30))
    assert driver.stats.decode_steps == driver.stats.decode_tokens == 30


def test_chunk_that_others_lost_steps_to_is_granted_in_its_turn(tiny: Path) -> None:
    """81 tokens are 5 chunks; the first is no grant."""
    busy, long = submit("busy", prompt(8), 60), submit("long", prompt(81), 2)
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=3)
    driver.tick(busy)
    driver.tick(long)
    chunks = []
    for _ in range(16):
        driver.tick()
        chunks.append(driver.stats.prefill_chunks)
    # The one of the busy prompt and the first are done; then one after each three steps.
    assert chunks == [2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6]
    assert driver.stats.prefill_grants == 4
    driver.run()
    assert_as_alone(driver, tiny, busy, long)


# Prompts of one token.


@pytest.mark.parametrize(
    "config", [DEEPSEEK_V3, GEMMA3, NEMOTRON_H, QWEN3_MOE], ids=lambda c: c["model_type"]
)
def test_prompts_of_one_token_on_every_kind_of_cache(
    tiny: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among themselves and beside a longer one, in cohorts where the caches allow it; held
    against forwards that keep no cache."""
    network, load = network_of(config), driving.load_model
    monkeypatch.setattr(
        driving,
        "load_model",
        lambda *args: replace(load(*args), network=network, config=config),
    )
    prompts = {"a": [65], "b": [66], "c": [65], "d": [67, 68, 69], "e": [70]}
    driver = Driver(tiny, parallel=3)
    driver.run(*(submit(name, ids, 6) for name, ids in prompts.items()))
    for name, ids in prompts.items():
        told = list(ids)
        for _ in range(6):
            told.append(int(mx.argmax(network(mx.array([told]))[0, -1])))
        assert driver.tokens(name) == told[len(ids) :], name
    assert driver.stats.prompt_tokens == 2
