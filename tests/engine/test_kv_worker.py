"""KV modes through the worker: rows that share a batch, and a turn that goes on from what was
kept."""

import dataclasses
from pathlib import Path
from typing import Any

import mlx.nn as nn
import pytest

from mlxcel.core.byte_vocab import VOCAB_SIZE
from mlxcel.core.cache import CacheStatus, CacheTag
from mlxcel.core.request import Lane
from mlxcel.engine.chat import ChatWorker
from tests.engine.driver import Driver, submit
from tests.engine.kv_rows import text
from tests.tiny.families import QWEN3_5, network_of

MODES = ["int8", "fp16+turbo4", "turbo4-delegated", "turbo3"]


def driver_of(tiny: Path, mode: str, **options: Any) -> Driver:
    return Driver(tiny, cache={"kv": {"mode": mode, "boundary_v_layers": 0}}, **options)


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_mixed_lengths_say_what_they_say_alone(tiny: Path, mode: str) -> None:
    driver = driver_of(tiny, mode, prefill_chunk_size=16)
    rows = [submit(f"m{n}", text(n), 6 + n % 5) for n in (4, 30, 11, 50, 20)]
    for row in rows:
        driver.tick(row)
    driver.run()
    alone = driver_of(tiny, mode)
    for row in rows:
        assert driver.tokens(row.id) == alone.alone(row)


@pytest.mark.parametrize("mode", ["int8", "fp16+turbo4", "turbo3"])
def test_next_turn_goes_on_from_kept_columns(tiny: Path, mode: str) -> None:
    driver = driver_of(tiny, mode)
    first = submit("first", text(70), 30, cache=CacheTag())
    driver.run(first)
    history = [*text(70), *driver.tokens("first"), *text(20, 1)]
    driver.run(submit("next", history, 12, cache=CacheTag()))
    report = driver.finish("next").timings.cache
    assert report is not None
    assert (report.status, report.reused) == (CacheStatus.HIT, 96)
    assert driver.tokens("next") == driver_of(tiny, mode).alone(submit("cold", history, 12))


@pytest.mark.parametrize("mode", ["int8", "turbo3"])
def test_preempted_row_goes_on_as_if_nothing_had_been(tiny: Path, mode: str) -> None:
    """Its tokens are read again in one piece, where it had made them one by one."""
    rows = [submit(f"p{n}", text(n), 30, lane=Lane.LOW) for n in (9, 40)]
    driver = driver_of(tiny, mode, parallel=2, preemption="longest-first")
    for row in rows:
        driver.tick(row)
        for _ in range(4):
            driver.tick()
    high = submit("high", text(5), 20, lane=Lane.HIGH)
    driver.run(high)
    assert driver.stats.preemptions == 1
    alone = driver_of(tiny, mode)
    for row in (*rows, high):
        assert driver.tokens(row.id) == alone.alone(row)


def test_hybrid_rows_of_a_mode_say_what_they_say_alone(tiny: Path) -> None:
    """Rows of a family whose other layers keep a recurrent state; none of it is kept."""
    network = network_of(QWEN3_5)
    rows = [submit(f"h{n}", text(n), 8, cache=CacheTag()) for n in (4, 30, 11)]
    together, alone = (_hybrid_driver(tiny, network) for _ in range(2))
    for row in rows:
        together.tick(row)
    together.run()
    for row in rows:
        assert together.tokens(row.id) == alone.alone(row)


def _hybrid_driver(tiny: Path, network: nn.Module) -> Driver:
    driver = driver_of(tiny, "turbo4")
    driver.worker.close()
    config = {"model_type": "qwen3_5", "vocab_size": VOCAB_SIZE, "hidden_size": 64}
    model = dataclasses.replace(driver.model, network=network, config=config)
    driver.worker = ChatWorker(driver.worker.options)
    driver.worker.setup({"model": model}, lambda step, fraction: None)
    return driver
