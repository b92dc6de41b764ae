"""Columns of rows: taken out of row caches and batches, and read on from."""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.utils import load_model

from mlxcel.engine.cache.segment import Layers, Segment, joined
from mlxcel.engine.kv.choose import batch_for
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.parts import are_whole, caches_from, copy_of, row_parts
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV
from tests.engine.kv_rows import assert_near, cohort, plain, prefilled, step, text

PLAIN = KVPlan()


@pytest.fixture(scope="module")
def network(tiny: Path) -> nn.Module:
    return load_model(tiny)[0]


def batch(network: nn.Module, plan: KVPlan = PLAIN) -> RaggedKV:
    kv = batch_for(network, 4, plan)
    assert isinstance(kv, RaggedKV)
    return kv


def flat(layers: Layers) -> list[np.ndarray]:
    return [np.array(part) for layer in layers for part in layer]


def read_on(
    network: nn.Module, layers: Layers, row: list[int], *, start: int, cap: int = 0
) -> None:
    """Adopt the first `start` tokens of a row, read the rest, and compare with a plain forward."""
    plan = KVPlan(cap=cap)
    caches = caches_from(joined([(Segment(layers, start), start)], room=start + 40), start, plan)
    logits = network(mx.array([row[start:-1]]), cache=caches)[0]
    assert_near(logits, plain(network, row, cap=cap)[start:-1])
    kv = batch(network, plan)
    kv.join(Prefilled(caches, (len(row) - 1,)))
    assert_near(step(network, kv, row[-1:])[0], plain(network, row, cap=cap)[-1])


def test_prompt_is_read_on_from_its_columns(network: nn.Module) -> None:
    row = text(90)
    caches = prefilled(network, row[:61]).caches
    read_on(network, row_parts(caches, 0, 0, 60), row, start=60)


@pytest.mark.parametrize("cap", [64, 128], ids=["cap-64", "cap-128"])
def test_prompt_below_a_cap_is_read_on_beyond_it(network: nn.Module, cap: int) -> None:
    row = text(150)
    caches = prefilled(network, row[:51], cap=cap).caches
    assert are_whole(caches)
    read_on(network, row_parts(caches, 0, 0, 50), row, start=50, cap=cap)


def test_cap_that_dropped_tokens_is_told(network: nn.Module) -> None:
    caches = prefilled(network, text(200), chunk=50, cap=64).caches
    assert not are_whole(caches)
    kv = batch(network, KVPlan(cap=64))
    kv.join(prefilled(network, text(64), cap=64))
    kv.join(prefilled(network, text(200), cap=64))
    assert [kv.has_dropped(place) for place in (0, 1)] == [False, True]
    step(network, kv, [1, 2])
    assert not kv.has_dropped(0)
    step(network, kv, [1, 2])
    assert kv.has_dropped(0)


def test_rows_of_a_cohort_are_told_apart(network: nn.Module) -> None:
    rows = [text(n, seed) for seed, n in enumerate((50, 20, 33))]
    caches = cohort(network, rows).caches
    for index, row in enumerate(rows):
        one = row_parts(caches, index, 0, len(row) - 1)
        alone = row_parts(prefilled(network, row).caches, 0, 0, len(row) - 1)
        for got, wanted in zip(flat(one), flat(alone), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_row_is_taken_out_of_a_batch(network: nn.Module) -> None:
    rows = [text(n, seed) for seed, n in enumerate((40, 12, 70))]
    kv = batch(network)
    for row in rows:
        kv.join(prefilled(network, row[:-3]))
    for at in (-4, -3, -2):
        step(network, kv, [row[at] for row in rows])
    kv.leave(0)
    row = rows[2]
    assert kv.keeps_columns
    first, rest = kv.extract(0, 0, 32), kv.extract(0, 32, 69)
    both = joined([(Segment(first, 32), 32), (Segment(rest, 37), 37)], room=0)
    read_on(network, both, [*row, 5, 6, 7], start=69)


def test_what_was_taken_out_does_not_change(network: nn.Module) -> None:
    """Neither by the row it came from nor by a row that goes on from it."""
    row = text(40)
    kv = batch(network)
    kv.join(prefilled(network, row))
    taken = kv.extract(0, 0, 39)
    before = flat(taken)
    for token in (row[-1], 8, 9):
        step(network, kv, [token])
    kv.leave(0)
    for _ in range(2):
        read_on(network, taken, [*row[:39], 4, 5, 6], start=39)
    for got, wanted in zip(flat(taken), before, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("columns", [1, 32, 90, 96])
def test_copy_holds_no_more_than_it_shows(columns: int) -> None:
    """One KV head: the slice is contiguous within its buffer."""
    buffer = mx.ones((1, 1, 96, 64))
    mx.eval(buffer)
    mx.clear_cache()  # a freed buffer that is too large would be used again
    held = mx.get_active_memory()
    copy = copy_of(buffer[:, :, :columns])
    mx.eval(copy)
    assert mx.get_active_memory() - held == copy.nbytes == columns * 256


def test_more_than_a_row_holds_is_refused(network: nn.Module) -> None:
    kv = batch(network)
    kv.join(prefilled(network, text(10)))
    with pytest.raises(AssertionError):
        kv.extract(0, 0, 10)
