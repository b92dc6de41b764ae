"""`max_kv_size`: only the newest tokens take part, at their true positions."""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.utils import load_model

from mlxcel.engine.kv.capped import CappedKVCache
from mlxcel.engine.kv.choose import batch_for, row_caches
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV
from tests.engine.kv_rows import assert_near, cohort, plain, prefilled, step, text

CAP = 64


@pytest.fixture(scope="module")
def network(tiny: Path) -> nn.Module:
    return load_model(tiny)[0]


def batch(network: nn.Module, slots: int = 4, cap: int = CAP) -> RaggedKV:
    kv = batch_for(network, slots, KVPlan(cap=cap))
    assert isinstance(kv, RaggedKV)
    return kv


@pytest.mark.parametrize(
    ("chunk", "processed"),
    [(1, 100), (7, 100), (64, 100), (100, 101)],
    ids=["token-by-token", "odd-chunks", "chunks-of-the-cap", "then-one-more"],
)
def test_hundred_tokens_under_a_cap_of_64(network: nn.Module, chunk: int, processed: int) -> None:
    tokens = text(processed)
    caches = prefilled(network, tokens, chunk=chunk, cap=64).caches
    network(mx.array([tokens[-1:]]), cache=caches)
    for cache in caches:
        assert (cache.offset, cache.start, cache.parts[0].shape[2]) == (
            processed,
            processed - 64,
            64,
        )


def test_positions_never_go_back_and_memory_is_bounded(network: nn.Module) -> None:
    caches = row_caches(network, KVPlan(cap=CAP))
    offsets, held = [], []
    for _ in range(10):
        network(mx.array([text(32)]), cache=caches)
        offsets.append(caches[0].offset)
        held.append(caches[0].parts[0].shape[2])
    assert offsets == list(range(32, 321, 32))
    assert max(held) == CAP - 1 + 32
    assert caches[0].nbytes == 2 * (CAP - 1 + 32) * 2 * 16 * 4


@pytest.mark.parametrize("chunk", [0, 7, 64, 100], ids=["whole", "7", "64", "100"])
@pytest.mark.parametrize("cap", [16, 64, 512], ids=["cap-16", "cap-64", "cap-512"])
def test_prompt_in_chunks_equals_a_plain_forward(network: nn.Module, cap: int, chunk: int) -> None:
    tokens = text(200)
    wanted = plain(network, tokens, cap=cap)
    caches = row_caches(network, KVPlan(cap=cap))
    for start in range(0, 200, chunk or 200):
        part = tokens[start : start + (chunk or 200)]
        logits = network(mx.array([part]), cache=caches)[0]
        assert_near(logits, wanted[start : start + len(part)])


def test_cap_changes_the_answer(network: nn.Module) -> None:
    tokens = text(200)
    difference = abs(plain(network, tokens, cap=64) - plain(network, tokens)).max(axis=1)
    assert difference[:64].max() == 0.0
    assert difference[64:].min() > 1e-2


@pytest.mark.parametrize(
    "lengths",
    [(150,), (10, 60, 150), (100, 150, 200), (150, 150, 150), (1, 63, 64), (65, 66, 128)],
    ids=["alone", "below-near-above", "all-full", "equal", "one-token", "at-the-cap"],
)
def test_rows_decode_as_a_plain_forward(network: nn.Module, lengths: tuple[int, ...]) -> None:
    rows = [text(length + 30, seed) for seed, length in enumerate(lengths)]
    wanted = [plain(network, row, cap=CAP) for row in rows]
    kv = batch(network)
    for row, length in zip(rows, lengths, strict=True):
        if length > 1:
            kv.join(prefilled(network, row[:length], chunk=48, cap=CAP))
        else:
            kv.join(_unread(network, row))
    for n in range(30):
        places = [length - 1 + n for length in lengths]
        logits = step(network, kv, [row[at] for row, at in zip(rows, places, strict=True)])
        for got, all_logits, at in zip(logits, wanted, places, strict=True):
            assert_near(got, all_logits[at])


def _unread(network: nn.Module, row: list[int]) -> Prefilled:
    """A prompt of one token: its KV is padding alone."""
    read = prefilled(network, row[:2], cap=CAP)
    return Prefilled(read.caches, (0,))


def test_cohort_rows_longer_than_the_cap(network: nn.Module) -> None:
    """The newest tokens of a short row stand before its padding."""
    lengths = (150, 90, 20)
    rows = [text(length + 5, seed) for seed, length in enumerate(lengths)]
    read = cohort(network, [row[:n] for row, n in zip(rows, lengths, strict=True)], cap=CAP)
    kv = batch(network)
    for index in range(3):
        kv.join(read, index)
    for n in range(5):
        logits = step(network, kv, [row[m - 1 + n] for row, m in zip(rows, lengths, strict=True)])
        for got, row, length in zip(logits, rows, lengths, strict=True):
            assert_near(got, plain(network, row[: length + n], cap=CAP)[-1])


@pytest.mark.parametrize(
    ("lengths", "masked"),
    [((100, 150), False), ((64, 90), False), ((63, 90), True), ((40, 40), False)],
    ids=["full", "just-full", "one-below", "equal"],
)
def test_only_rows_below_the_cap_cost_a_mask(
    network: nn.Module, lengths: tuple[int, int], masked: bool
) -> None:
    kv = batch(network)
    for length in lengths:
        kv.join(prefilled(network, text(length), cap=CAP))
    kv.begin()
    assert (kv.mask is not None) == masked


def test_ring_takes_no_more_than_the_cap(network: nn.Module) -> None:
    kv = batch(network)
    kv.join(prefilled(network, text(300), cap=CAP))
    for token in text(70):
        step(network, kv, [token])
    assert kv.nbytes == 2 * 2 * CAP * 2 * 16 * 4


def test_row_that_moves_into_a_hole_goes_on(network: nn.Module) -> None:
    rows = [text(length, seed) for seed, length in enumerate((70, 20, 200))]
    kv = batch(network)
    for row in rows:
        kv.join(prefilled(network, row[:-3], cap=CAP))
    kv.leave(0)
    for n in (-4, -3, -2):
        logits = step(network, kv, [rows[2][n], rows[1][n]])
    assert_near(logits[0], plain(network, rows[2], cap=CAP)[-2])
    assert_near(logits[1], plain(network, rows[1], cap=CAP)[-2])


def test_window_of_the_model_narrower_than_the_cap_is_kept() -> None:
    cache = CappedKVCache(64)
    zeros = mx.zeros((1, 1, 100, 4))
    cache.update_and_fetch(zeros, zeros)
    mask = cache.make_mask(8, window_size=16)
    assert isinstance(mask, mx.array)
    assert mask.sum(axis=1).tolist() == [16] * 8
