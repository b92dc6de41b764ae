"""Rows that share a batch: each is what it would be alone, whoever joins and leaves."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlxcel.core.events import FinishReason
from mlxcel.core.sampling import Dry
from mlxcel.engine.cache.look import OFF
from mlxcel.link.messages import Cancel, RowAccepted, RowFinished, Submit
from tests.engine.driver import Driver, submit

LENGTHS = (5, 40, 17, 100, 3, 64)
DRY = Dry(multiplier=1.0, base=1.75, allowed_length=1, window=64, breakers=(10,))


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(f"{length}/{seed}")
    return [rng.randrange(256) for _ in range(length)]


def requests(**sampling: Any) -> list[Submit]:
    return [
        submit(f"r{i}", prompt(n), 8 + 5 * i, **({"seed": i} | sampling))
        for i, n in enumerate(LENGTHS)
    ]


def alone(checkpoint: Path, request: Submit) -> list[int]:
    return Driver(checkpoint).alone(request)


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param({}, id="greedy"),
        pytest.param({"temperature": 0.9}, id="plain"),
        pytest.param({"temperature": 1.2, "top_p": 0.8}, id="top-p"),
        pytest.param(
            {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}, id="defaults"
        ),
        pytest.param({"repetition_penalty": 1.4, "penalty_window": 20}, id="greedy-penalised"),
        pytest.param(
            {"temperature": 1.0, "presence_penalty": 0.7, "frequency_penalty": 0.3}, id="penalised"
        ),
        pytest.param({"temperature": 0.9, "dry": DRY}, id="dry"),
        pytest.param(
            {
                "temperature": 1.1,
                "typical_p": 0.9,
                "top_n_sigma": 2.0,
                "xtc_probability": 0.5,
                "xtc_threshold": 0.05,
                "bias": ((65, 3.0), (66, -np.inf)),
                "dry": DRY,
                "repetition_penalty": 1.2,
            },
            id="everything",
        ),
    ],
)
def test_row_in_batch_equals_row_alone(tiny: Path, sampling: dict[str, Any]) -> None:
    """Six rows over four slots, of different lengths, joining at different steps."""
    rows = requests(**sampling)
    driver = Driver(tiny)
    for i, row in enumerate(rows):
        driver.tick(row)
        if i % 2:
            driver.tick()
    driver.run()
    for row in rows:
        assert driver.tokens(row.id) == alone(tiny, row)
        assert len(driver.tokens(row.id)) == row.max_tokens


def test_row_beside_rows_of_other_kinds_equals_row_alone(tiny: Path) -> None:
    kinds = [
        {},
        {"temperature": 1.0},
        {"temperature": 1.0, "top_p": 0.7},
        {"temperature": 1.0, "top_k": 5, "presence_penalty": 1.0, "penalty_window": 9},
    ]
    rows = [submit(f"k{i}", prompt(9, i), 20, seed=i, **kind) for i, kind in enumerate(kinds)]
    driver = Driver(tiny)
    driver.run(*rows)
    for row in rows:
        assert driver.tokens(row.id) == alone(tiny, row)


def test_cancelled_row_leaves_at_next_tick_and_disturbs_nobody(tiny: Path) -> None:
    rows = [submit(f"c{i}", prompt(12, i), 30) for i in range(4)]
    driver = Driver(tiny)
    for row in rows:
        driver.tick(row)
    for _ in range(5):
        driver.tick()
    frame = driver.tick(Cancel(id="c1"))
    assert frame is not None
    assert frame.stats.active == 3
    said = len(driver.tokens("c1"))
    driver.run()
    assert len(driver.tokens("c1")) == said < 30
    for row in rows[:1] + rows[2:]:
        assert driver.tokens(row.id) == alone(tiny, row)


def test_freed_slot_goes_to_the_oldest_waiting_request(tiny: Path) -> None:
    driver = Driver(tiny, parallel=2)
    rows = [submit(f"w{i}", prompt(6, i), 10 + i) for i in range(5)]
    driver.run(*rows)
    events = [event for frame in driver.frames for event in frame.events]
    ends = [event.id for event in events if isinstance(event, RowFinished)]
    assert ends == ["w0", "w1", "w2", "w3", "w4"]
    for row in rows:
        assert driver.tokens(row.id) == alone(tiny, row)


def test_chunked_prompt_gives_the_tokens_of_the_unchunked_one(tiny: Path) -> None:
    long = submit("long", prompt(150), 12)
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=2)
    driver.tick(submit("busy", prompt(8), 60))
    driver.tick(long)
    driver.run()
    assert driver.frames[-1].stats.prefill_chunks == 11
    assert driver.tokens("long") == alone(tiny, long)
    assert driver.tokens("busy") == alone(tiny, submit("busy", prompt(8), 60))


def test_cancel_between_chunks_drops_the_parked_prompt(tiny: Path) -> None:
    driver = Driver(tiny, prefill_chunk_size=16)
    driver.tick(submit("long", prompt(150), 12))
    driver.tick(Cancel(id="long"))
    driver.run(submit("next", prompt(7), 3))
    assert driver.tokens("long") == []
    assert driver.tokens("next") == alone(tiny, submit("next", prompt(7), 3))


def test_queue_bound_refuses_and_forgets_nothing(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1, max_queue_depth=2)
    driver.tick(submit("a", prompt(5), 9))
    driver.tick(submit("b", prompt(5, 1), 2), submit("c", prompt(5, 2), 2), submit("d", [1], 2))
    assert driver.failure("d").error.code == "server_busy"
    assert driver.failure("d").error.status == 503
    driver.run()
    assert [len(driver.tokens(n)) for n in "abc"] == [9, 2, 2]


def test_cancelled_waiting_request_frees_its_place(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1, max_queue_depth=1)
    driver.tick(submit("a", prompt(5), 9))
    driver.tick(submit("b", prompt(5, 1), 2))
    driver.tick(Cancel(id="b"), submit("c", prompt(5, 2), 2))
    assert RowAccepted("c", OFF) in driver.events("c")
    driver.run()
    assert driver.events("b") == [RowAccepted("b", OFF)]


def test_eos_ends_the_row_and_is_not_emitted(tiny: Path) -> None:
    free = alone(tiny, submit("free", prompt(20), 30))
    end = free[10]
    cut = free.index(end)
    driver = Driver(tiny)
    driver.run(submit("e", prompt(20), 30, eos=(end,)), submit("other", prompt(4), 30))
    assert driver.tokens("e") == free[:cut]
    assert driver.reason("e") is FinishReason.EOS
    assert driver.finish("e").usage.completion_tokens == cut
    assert driver.tokens("other") == alone(tiny, submit("other", prompt(4), 30))


@pytest.mark.parametrize(
    ("max_tokens", "ctx_size", "reason", "tokens"),
    [
        pytest.param(1, 0, FinishReason.LENGTH, 1, id="one-token"),
        pytest.param(0, 0, FinishReason.LENGTH, 0, id="no-token"),
        pytest.param(50, 4 * 30, FinishReason.CONTEXT, 9, id="window-full"),
    ],
)
def test_row_ends_at_its_limit(
    tiny: Path, max_tokens: int, ctx_size: int, reason: FinishReason, tokens: int
) -> None:
    driver = Driver(tiny, ctx_size=ctx_size)
    driver.run(submit("x", prompt(20), max_tokens))
    assert len(driver.tokens("x")) == tokens
    assert driver.reason("x") is reason
    assert driver.finish("x").usage.prompt_tokens == 20


def test_failed_step_ends_its_rows_and_the_next_request_works(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tiny)
    for i in range(3):
        driver.tick(submit(f"f{i}", prompt(10, i), 20))
    driver.tick()

    def out_of_memory() -> None:
        raise RuntimeError("[malloc] Unable to allocate 99 bytes.")

    with monkeypatch.context() as patch:
        patch.setattr(driver.worker._scheduler._decoder._kv, "begin", out_of_memory)
        driver.tick()
    assert {driver.failure(f"f{i}").error.code for i in range(3)} == {"generation_failed"}
    driver.run(submit("after", prompt(33), 6))
    assert driver.tokens("after") == alone(tiny, submit("after", prompt(33), 6))


def test_idle_worker_holds_no_kv(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(*requests())
    assert driver.frames[-1].stats.kv_bytes == 0
    assert driver.frames[-1].stats.active == 0
    assert driver.frames[-1].stats.completed == len(LENGTHS)


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
def test_penalty_sees_every_token_of_the_answer(tiny: Path, temperature: float) -> None:
    """A penalty nothing outweighs: no token comes twice, though each step is built from unread
    tokens and rows join and leave meanwhile."""
    params = {"temperature": temperature, "presence_penalty": 1e3, "penalty_window": 64}
    rows = [submit(f"p{i}", prompt(4, i), 20 + 10 * i, seed=i, **params) for i in range(3)]
    driver = Driver(tiny, parallel=2)
    driver.run(*rows)
    for i, row in enumerate(rows):
        said = [*prompt(4, i), *driver.tokens(row.id)]
        assert len(driver.tokens(row.id)) == row.max_tokens
        assert len(set(said)) == len(set(prompt(4, i))) + row.max_tokens
