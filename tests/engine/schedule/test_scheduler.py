"""Lanes, cohorts, mixed steps, preemption and the KV budget, on a real engine: whatever happens
to a row, its text is what it would be alone."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.events import FinishReason
from mlxcel.core.request import Lane
from mlxcel.engine.cache.look import OFF
from mlxcel.link.messages import Cancel, RowAccepted, RowEnded, Submit
from tests.engine.driver import Driver, submit


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(7 * i * (seed + 3) + seed) % 256 for i in range(length)]


def alone(tiny: Path, request: Submit, choice: int = 0) -> list[int]:
    driver = Driver(tiny)
    driver.run(request)
    return driver.tokens(request.id, choice)


def ends(driver: Driver) -> list[str]:
    events = [event for frame in driver.frames for event in frame.events]
    return [event.id for event in events if isinstance(event, RowEnded)]


def first_tokens(driver: Driver) -> list[str]:
    names = [event.id for frame in driver.frames for event in frame.events]
    return list(dict.fromkeys(names))


def test_more_important_requests_start_first(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1)
    driver.tick(submit("busy", prompt(5), 3))
    driver.run(
        submit("low", prompt(6), 2, lane=Lane.LOW),
        submit("normal", prompt(6), 2),
        submit("high", prompt(6), 2, lane=Lane.HIGH),
        submit("normal2", prompt(6), 2),
    )
    assert ends(driver) == ["busy", "high", "normal", "normal2", "low"]


def test_no_batch_ignores_lanes_and_cuts_no_prompt(tiny: Path) -> None:
    driver = Driver(tiny, no_batch=True, parallel=4, prefill_chunk_size=16, ctx_size=400)
    assert driver.info.context_window == 400
    driver.run(
        submit("a", prompt(50), 3),
        submit("low", prompt(60), 2, lane=Lane.LOW),
        submit("high", prompt(60), 2, lane=Lane.HIGH),
    )
    assert ends(driver) == ["a", "low", "high"]
    assert driver.stats.prefill_chunks == 3
    assert driver.stats.slots == 1


@pytest.mark.parametrize(
    ("scheduler", "slots", "share"),
    [
        pytest.param({"parallel": 4}, 4, 2048, id="parallel"),
        pytest.param({"parallel": 4, "max_batch_size": 2}, 2, 4096, id="max-batch-size"),
        pytest.param({"parallel": 4, "no_batch": True}, 1, 8192, id="no-batch"),
    ],
)
def test_slots_divide_the_context(
    tiny: Path, scheduler: dict[str, Any], slots: int, share: int
) -> None:
    driver = Driver(tiny, ctx_size=8192, **scheduler)
    driver.run(submit("x", prompt(4), 1))
    assert driver.info.context_window == share
    assert driver.stats.slots == slots


def test_short_prompts_share_one_forward(tiny: Path) -> None:
    rows = [submit(f"c{i}", prompt(n, i), 6) for i, n in enumerate((9, 40, 1, 23))]
    driver = Driver(tiny)
    driver.run(*rows)
    assert driver.stats.prefill_chunks == 1
    assert driver.stats.prompt_tokens == 8 + 39 + 0 + 22
    for row in rows:
        assert driver.tokens(row.id) == alone(tiny, row)


def test_cohort_stops_at_the_cap(tiny: Path) -> None:
    lengths = (100, 100, 120, 90)
    driver = Driver(tiny, max_batch_prefill_tokens=400)
    driver.run(*(submit(f"c{i}", prompt(n, i), 2) for i, n in enumerate(lengths)))
    assert driver.stats.prefill_chunks == 2


def test_first_token_comes_with_the_last_chunk(tiny: Path) -> None:
    driver = Driver(tiny, prefill_chunk_size=16)
    driver.tick(submit("a", prompt(33), 9))
    frame = driver.tick()
    assert len(driver.tokens("a")) == 1, frame


def test_mixed_step_decodes_while_a_prompt_is_read(tiny: Path) -> None:
    busy, long = submit("busy", prompt(8), 40), submit("long", prompt(150), 12)
    driver = Driver(tiny, prefill_chunk_size=16, mixed_step=True)
    driver.tick(busy)
    driver.tick()
    driver.tick(long)
    said = len(driver.tokens("busy"))
    for _ in range(9):
        driver.tick()
    assert driver.stats.mixed_steps >= 8
    assert len(driver.tokens("busy")) >= said + 8
    driver.run()
    assert driver.tokens("busy") == alone(tiny, busy)
    assert driver.tokens("long") == alone(tiny, long)


def test_grants_are_counted(tiny: Path) -> None:
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=2)
    driver.tick(submit("busy", prompt(8), 60))
    driver.run(submit("long", prompt(81), 2))
    assert driver.stats.prefill_grants == 4


@pytest.mark.parametrize(
    ("policy", "lane", "victim"),
    [
        pytest.param("longest-first", Lane.LOW, "first", id="longest-first"),
        pytest.param("lowest-priority", Lane.NORMAL, "second", id="lowest-priority"),
    ],
)
@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.9, "seed": 4}], ids=["greedy", "sampled"]
)
def test_preempted_row_goes_on_as_if_nothing_had_been(
    tiny: Path, policy: str, lane: Lane, victim: str, sampling: dict[str, Any]
) -> None:
    rows = [
        submit("first", prompt(9), 30, lane=lane, **sampling),
        submit("second", prompt(12, 1), 30, lane=Lane.LOW, **sampling),
    ]
    high = submit("high", prompt(5, 2), 20, lane=Lane.HIGH, **sampling)
    driver = Driver(tiny, parallel=2, preemption=policy)
    for row in rows:
        driver.tick(row)
        for _ in range(4):
            driver.tick()
    driver.tick(high)
    said = {row.id: len(driver.tokens(row.id)) for row in rows}
    for _ in range(5):
        driver.tick()
    stopped = [row.id for row in rows if len(driver.tokens(row.id)) == said[row.id]]
    assert stopped == [victim]
    driver.run()
    for row in (*rows, high):
        assert driver.tokens(row.id) == alone(tiny, row)
    assert driver.stats.preemptions == 1
    assert driver.stats.started == driver.stats.completed == 3
    assert [e for e in driver.events(victim) if isinstance(e, RowAccepted)] == [
        RowAccepted(victim, OFF)
    ]


def test_nobody_is_preempted_unless_it_is_on(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1)
    driver.tick(submit("low", prompt(9), 12, lane=Lane.LOW))
    driver.run(submit("high", prompt(5), 3, lane=Lane.HIGH))
    assert ends(driver) == ["low", "high"]
    assert driver.stats.preemptions == 0


def test_preempted_row_keeps_penalties_and_what_its_sampler_learned(tiny: Path) -> None:
    from mlxcel.core.sampling import Mirostat

    learned = {"temperature": 1.0, "mirostat": Mirostat(version=2, rate=0.5, target=2.0)}
    penalised = {"temperature": 1.0, "presence_penalty": 5.0, "penalty_window": 64}
    for sampling in (learned, penalised):
        row = submit("low", prompt(9), 40, lane=Lane.LOW, seed=3, **sampling)
        driver = Driver(tiny, parallel=1, preemption="lowest-priority")
        driver.tick(row)
        for i in range(3):
            for _ in range(6):
                driver.tick()
            driver.tick(submit(f"high{i}", prompt(5), 4, lane=Lane.HIGH))
        driver.run()
        assert driver.stats.preemptions == 3
        assert driver.tokens("low") == alone(tiny, row)


@pytest.mark.parametrize("parallel", [1, 3, 8])
def test_choices_share_a_prefill_and_are_what_their_seeds_give_alone(
    tiny: Path, parallel: int
) -> None:
    request = submit("n", prompt(30), 14, choices=8, temperature=1.0, seed=10)
    driver = Driver(tiny, parallel=parallel)
    driver.run(request, submit("other", prompt(7), 9))
    assert driver.stats.prompt_tokens == 29 + 6
    for choice in range(8):
        single = submit("s", prompt(30), 14, temperature=1.0, seed=10 + choice)
        assert driver.tokens("n", choice) == alone(tiny, single)
        assert driver.reason("n", choice) is FinishReason.LENGTH
    assert driver.finish("n").usage.completion_tokens == 8 * 14
    assert driver.finish("n").usage.prompt_tokens == 30
    assert driver.tokens("other") == alone(tiny, submit("other", prompt(7), 9))


def test_cancel_forgets_every_choice(tiny: Path) -> None:
    driver = Driver(tiny, parallel=2)
    driver.tick(submit("n", prompt(30), 14, choices=5, temperature=1.0))
    driver.tick()
    driver.tick(Cancel(id="n"))
    driver.run(submit("next", prompt(7), 3))
    assert driver.stats.active == driver.stats.waiting == 0
    assert driver.tokens("next") == alone(tiny, submit("next", prompt(7), 3))


def blocks(count: int, checkpoint: Path) -> int:
    """Bytes of so many KV blocks of the tiny model: 2 x 32 tokens x 2 heads x 16 x 4 bytes."""
    return count * 2 * 32 * 2 * 16 * 4


def test_prompt_that_can_never_fit_is_told_so(tiny: Path) -> None:
    driver = Driver(tiny, cache={"kv_budget": blocks(8, tiny)})
    driver.run(submit("big", prompt(200), 4), submit("small", prompt(20), 4))
    error = driver.failure("big").error
    assert error.message == "prompt needs 14 KV blocks, exceeding the 8-block KV cache budget"
    assert len(driver.tokens("small")) == 4


def test_prompt_waits_until_a_row_gives_its_blocks_back(tiny: Path) -> None:
    driver = Driver(tiny, cache={"kv_budget": blocks(8, tiny)}, max_batch_prefill=1)
    driver.tick(submit("a", prompt(90), 20))
    driver.run(submit("b", prompt(90), 4))
    assert ends(driver) == ["a", "b"]
    assert driver.tokens("b") == alone(tiny, submit("b", prompt(90), 4))
    assert driver.stats.kv_blocks == 0
    assert driver.stats.kv_block_budget == 8


def test_row_that_cannot_grow_fails_and_the_others_go_on(tiny: Path) -> None:
    driver = Driver(tiny, cache={"kv_budget": blocks(8, tiny), "kv_watermark": 0.0})
    driver.run(submit("a", prompt(60), 60), submit("b", prompt(60), 60))
    failed = [name for name in "ab" if not ends(driver).count(name)]
    assert len(failed) == 1
    assert driver.failure(failed[0]).error.code == "server_busy"
    (whole,) = set("ab") - set(failed)
    assert driver.tokens(whole) == alone(tiny, submit(whole, prompt(60), 60))


def test_row_that_cannot_grow_drives_out_a_less_important_one(tiny: Path) -> None:
    driver = Driver(
        tiny, cache={"kv_budget": blocks(8, tiny), "kv_watermark": 0.0}, preemption="longest-first"
    )
    high, low = submit("h", prompt(60), 60, lane=Lane.HIGH), submit("l", prompt(60), 60)
    driver.run(low, high)
    assert driver.stats.preemptions >= 1
    for row in (high, low):
        assert driver.tokens(row.id) == alone(tiny, row)


def test_request_over_the_memory_budget_is_refused_before_any_prefill(tiny: Path) -> None:
    driver = Driver(tiny, memory_budget=2_000_000)
    driver.run(submit("big", prompt(400), 100_000), submit("small", prompt(20), 4))
    error = driver.failure("big").error
    assert (error.code, error.status) == ("request_memory_budget_exceeded", 503)
    assert driver.stats.prefill_chunks == 1
    assert len(driver.tokens("small")) == 4


def test_forced_sync_gives_the_same_text(tiny: Path) -> None:
    rows = [submit(f"s{i}", prompt(9, i), 12, temperature=1.0, seed=i) for i in range(3)]
    driver = Driver(tiny, lookahead=False)
    driver.run(*rows)
    assert driver.stats.lookahead_steps == 0
    for row in rows:
        assert driver.tokens(row.id) == alone(tiny, row)


def test_steps_run_ahead_by_default(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(submit("a", prompt(9), 30))
    assert driver.stats.lookahead_steps >= 27
