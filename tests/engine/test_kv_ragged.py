"""The batch of rows of unequal length: joining, leaving, and who sees what."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache
from mlx_lm.utils import load_model

from mlxcel.engine.kv.capped import CappedKVCache
from mlxcel.engine.kv.choose import batch_for
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV
from tests.engine.kv_rows import assert_near, cohort, plain, prefilled, step, text

SLOTS = 4


@pytest.fixture(scope="module")
def network(tiny: Path) -> nn.Module:
    return load_model(tiny)[0]


@pytest.fixture
def kv(network: nn.Module) -> RaggedKV:
    batch = batch_for(network, SLOTS, KVPlan())
    assert isinstance(batch, RaggedKV)
    return batch


def test_cohort_rows_decode_as_alone(network: nn.Module, kv: RaggedKV) -> None:
    rows = [text(n, seed) for seed, n in enumerate((30, 9, 300))]
    read = cohort(network, rows)
    for index in (2, 0, 1):
        kv.join(read, index)
    logits = step(network, kv, [rows[2][-1], rows[0][-1], rows[1][-1]])
    for got, row in zip(logits, (rows[2], rows[0], rows[1]), strict=True):
        assert_near(got, plain(network, row)[-1])


def test_eight_choices_of_one_prefill_share_nothing(network: nn.Module) -> None:
    kv = batch_for(network, 8, KVPlan())
    prompt = text(20)
    read = prefilled(network, prompt)
    before = [np.array(cache.keys) for cache in read.caches]
    for _ in range(8):
        kv.join(read)
    step(network, kv, prompt[-1:] * 8)
    logits = step(network, kv, list(range(8)))
    for token, got in enumerate(logits):
        assert_near(got, plain(network, [*prompt, token])[-1])
    for cache, keys in zip(read.caches, before, strict=True):
        assert cache.offset == 19
        np.testing.assert_array_equal(np.array(cache.keys), keys)


def test_choice_that_joins_later_starts_from_the_prompt(network: nn.Module, kv: RaggedKV) -> None:
    """The first row took the memory of the prefill over: what it wrote since must not show."""
    prompt = text(20)
    read = prefilled(network, prompt)
    before = np.array(read.caches[0].keys)
    kv.join(read)
    for token in (prompt[-1], 1, 2, 3):
        step(network, kv, [token])
    np.testing.assert_array_equal(np.array(read.caches[0].keys), before)
    kv.join(read)
    logits = step(network, kv, [4, prompt[-1]])
    assert_near(logits[0], plain(network, [*prompt, 1, 2, 3, 4])[-1])
    assert_near(logits[1], plain(network, prompt)[-1])


def test_rows_outgrow_their_columns(network: nn.Module, kv: RaggedKV) -> None:
    rows = [text(260, 1), text(12, 2)]
    kv.join(prefilled(network, rows[0][:250]))
    kv.join(prefilled(network, rows[1][:2]))
    for n in range(10):
        logits = step(network, kv, [rows[0][249 + n], rows[1][1 + n]])
    assert_near(logits[0], plain(network, rows[0][:259])[-1])
    assert_near(logits[1], plain(network, rows[1][:11])[-1])


def test_prompt_of_one_token_reads_nothing(network: nn.Module, kv: RaggedKV) -> None:
    read = prefilled(network, [7, 0])
    kv.join(Prefilled(read.caches, (0,)))
    assert_near(step(network, kv, [9])[0], plain(network, [9])[-1])


def test_no_byte_stays_when_the_last_row_leaves(network: nn.Module, kv: RaggedKV) -> None:
    for n in (5, 9):
        kv.join(prefilled(network, text(n)))
    kv.leave(0)
    assert kv.nbytes
    kv.leave(0)
    assert (len(kv), kv.nbytes) == (0, 0)
    kv.check()


def test_check_finds_a_layer_that_was_left_over(network: nn.Module, kv: RaggedKV) -> None:
    kv.join(prefilled(network, text(5)))
    kept = kv.layers[1].kept.arrays
    kv.leave(0)
    kv.layers[1].kept.arrays = kept
    with pytest.raises(AssertionError):
        kv.check()


def test_equal_rows_need_no_mask(network: nn.Module, kv: RaggedKV) -> None:
    for seed in range(3):
        kv.join(prefilled(network, text(9, seed)))
    kv.begin()
    assert kv.mask is None
    kv.join(prefilled(network, text(10)))
    kv.begin()
    assert kv.mask is not None


# Who sees what, by stamps in place of keys: row * 1000 + position.


@dataclass
class Rows:
    """A batch of one layer, and what each row should see."""

    kv: RaggedKV
    cap: int
    rows: list[tuple[int, int]] = field(default_factory=list)
    """Stamp and length of each row, by place."""
    made: int = 0

    def read(self, lengths: list[int]) -> None:
        longest = max(lengths)
        firsts = [1000 * (self.made + i) for i in range(len(lengths))]
        stamps = mx.array(firsts)[:, None] + mx.arange(longest)[None]
        cache = CappedKVCache(self.cap) if self.cap else KVCache()
        cache.update_and_fetch(*[stamps[:, None, :, None].astype(mx.float32)] * 2)
        read = Prefilled([cache], tuple(lengths))
        for index, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
            if len(self.rows) < SLOTS:
                self.kv.join(read, index)
                self.rows.append((first, length))
        self.made += len(lengths)

    def leave(self, place: int) -> None:
        place %= len(self.rows)
        self.kv.leave(place)
        last = self.rows.pop()
        if place < len(self.rows):
            self.rows[place] = last

    def step(self) -> Iterator[tuple[list[int], list[int]]]:
        """What each row saw, and what it should have."""
        kv, (layer,) = self.kv, self.kv.layers
        kv.begin()
        lengths = [length for _, length in self.rows]
        offsets = layer.offset
        assert lengths == ([offsets] * len(lengths) if kv.common is not None else offsets.tolist())
        new = mx.array([float(first + length) for first, length in self.rows])[:, None, None, None]
        keys, values = layer.update_and_fetch(new, new)
        kv.advance()
        assert mx.array_equal(keys, values)
        mask = np.ones((len(lengths), keys.shape[2]), bool)
        if kv.mask is not None:
            mask = np.array(kv.mask)[:, 0, 0]
        self.rows = [(first, length + 1) for first, length in self.rows]
        for (first, length), row, seen in zip(self.rows, np.array(keys), mask, strict=True):
            oldest = max(0, length - self.cap) if self.cap else 0
            yield sorted(row[0, seen, 0]), [first + at for at in range(oldest, length)]


READ = st.lists(st.integers(1, 20), min_size=1, max_size=3).map(lambda n: ("read", n))
LEAVE = st.integers(0, SLOTS).map(lambda place: ("leave", place))
STEP = st.integers(1, 9).map(lambda count: ("step", count))


@settings(max_examples=60, deadline=None)
@given(cap=st.sampled_from([0, 1, 4, 7]), work=st.lists(READ | LEAVE | STEP, max_size=12))
def test_each_row_sees_its_own_newest_positions(cap: int, work: list[tuple[str, object]]) -> None:
    rows = Rows(RaggedKV(1, SLOTS, cap=cap), cap)
    for what, value in work:
        if what == "read":
            rows.read(value)
        elif rows.rows and what == "leave":
            rows.leave(value)
        elif rows.rows:
            for _ in range(value):
                for seen, wanted in rows.step():
                    assert seen == wanted
        rows.kv.check()
    while rows.rows:
        rows.leave(0)
    assert rows.kv.nbytes == 0
