"""Attention led to our own for rows of unequal length. The kernel itself needs CUDA
(benchmarks/ragged_attention.py); here the same sum stands in for it."""

from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.engine.kv import attend, trial
from mlxcel.engine.kv.ragged import RaggedKV
from tests.engine.driver import Driver, submit


def by_mask(
    queries: mx.array, keys: mx.array, values: mx.array, offsets: mx.array, scale: float
) -> mx.array:
    rows = queries.shape[0]
    mask = mx.arange(keys.shape[2])[None, None, None] <= offsets[:, None, None, None]
    sdpa = mx.fast.scaled_dot_product_attention
    return sdpa(queries, keys[:rows], values[:rows], scale=scale, mask=mask)


def test_model_is_led_to_our_attention_and_says_the_same(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(*arguments: mx.array) -> mx.array:
        calls.append(arguments)
        return by_mask(*arguments)

    rows = [submit(f"r{i}", list(range(3 + 20 * i)), 10) for i in range(3)]
    plain, own = Driver(tiny), Driver(tiny)
    monkeypatch.setattr(attend, "attend", counted)
    assert trial.knows_ragged_rows(own.model.network)
    decoder = own.worker._scheduler._decoder
    decoder._kv = RaggedKV(2, 4, needs_no_mask=True)
    calls.clear()
    own.run(*rows)
    assert calls
    plain.run(*rows)
    for row in rows:
        assert own.tokens(row.id) == plain.tokens(row.id)


def test_attention_that_gives_other_numbers_is_not_relied_on(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Driver(tiny).model.network
    monkeypatch.setattr(attend, "attend", lambda q, k, v, offsets, scale: mx.zeros_like(q))
    assert not trial.knows_ragged_rows(network)


def test_kernel_that_cannot_be_built_is_not_relied_on(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: mx.array) -> mx.array:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(attend, "attend", broken)
    assert not trial.knows_ragged_rows(Driver(tiny).model.network)
