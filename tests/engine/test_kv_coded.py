"""KV modes in prompts and batches: rows of mixed lengths say what each would say alone.

The reference is one forward over a whole row without any cache, in which every key and value goes
through the codec. Codes of a number near the middle between two levels may come out differently
where sums ran in another order. Most such codes move a logit by less than `NEAR`, some by 0.07:
the rows here are of seeds that have none of those, be it with MKL or the reference BLAS.
"""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.utils import load_model

from mlxcel.engine.cache.segment import Layers, Segment, joined
from mlxcel.engine.kv import choose
from mlxcel.engine.kv.choose import batch_for, row_caches
from mlxcel.engine.kv.codec import LayerCodec
from mlxcel.engine.kv.modes import KVPlan, plan_kv
from mlxcel.engine.kv.parts import caches_from, row_parts
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV
from mlxcel.worker.precision import Backend
from tests.engine.kv_rows import Logits, step, text
from tests.tiny.checkpoint import build_tiny_checkpoint

pytestmark = pytest.mark.slow

NEAR = 0.02
"""Of logits whose spread is about 3."""
KV = {"mode": "fp16", "type_k": None, "type_v": None, "boundary_v_layers": 0, "bits": 0,
      "group_size": 64, "scheme": "uniform", "skip_last_layer": False}  # fmt: skip
MODES: dict[str, dict[str, Any]] = {
    "int8": {"mode": "int8"},
    "fp16+turbo4": {"mode": "fp16+turbo4"},
    "turbo4": {"mode": "turbo4"},
    "turbo4-delegated": {"mode": "turbo4-delegated"},
    "fp16+turbo3": {"mode": "fp16+turbo3"},
    "fp16+turbo4-boundary": {"mode": "fp16+turbo4", "boundary_v_layers": 1},
    "uniform-4": {"bits": 4},
    "uniform-8-skip": {"bits": 8, "skip_last_layer": True},
    "turboquant-4": {"bits": 4, "scheme": "turboquant"},
}
DELEGATED = "turbo4-delegated"
SAME_EVERYWHERE = [name for name in MODES if name != DELEGATED]
"""What a token sees of another does not depend on when it asks."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    """Three layers with heads of 64."""
    folder = tmp_path_factory.mktemp("tiny") / "heads-of-64"
    build_tiny_checkpoint(folder, layers=3, hidden=256, heads=4, kv_heads=2)
    return load_model(folder)[0]


def plan_of(network: nn.Module, name: str, cap: int = 0) -> KVPlan:
    """As of a family whose keys stand four bits."""
    plan = plan_kv(network, "qwen3_5", {"max_kv_size": cap, "kv": KV | MODES[name]})
    assert any(plan.codecs)
    return plan


@pytest.fixture(params=MODES)
def plan(request: pytest.FixtureRequest, network: nn.Module) -> KVPlan:
    return plan_of(network, request.param)


@pytest.fixture(params=SAME_EVERYWHERE)
def steady(request: pytest.FixtureRequest, network: nn.Module) -> KVPlan:
    return plan_of(network, request.param)


def batch(network: nn.Module, plan: KVPlan, slots: int = 4) -> RaggedKV:
    kv = batch_for(network, slots, plan)
    assert isinstance(kv, RaggedKV)
    return kv


def read(network: nn.Module, plan: KVPlan, tokens: list[int], chunk: int = 0) -> Prefilled:
    """All tokens but the last."""
    return read_on(network, row_caches(network, plan), tokens, 0, chunk)


def read_on(
    network: nn.Module, caches: list[Any], tokens: list[int], start: int, chunk: int = 0
) -> Prefilled:
    head = tokens[:-1]
    for at in range(start, len(head), chunk or len(head)):
        network(mx.array([head[at : at + (chunk or len(head))]]), cache=caches)
        mx.eval([cache.state for cache in caches])
    return Prefilled(caches, (len(head),))


class Through:
    """No cache: everything at once, as the codec gives it back."""

    def __init__(self, codec: LayerCodec | None, mask: mx.array) -> None:
        self.offset = 0
        self._codec = codec
        self._mask = mask

    def make_mask(self, n: int, **_: Any) -> mx.array:
        return self._mask

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        if self._codec is None:
            return keys, values
        return self._codec.decode(self._codec.encode(keys, values), keys.dtype)


def wanted(network: nn.Module, plan: KVPlan, tokens: list[int]) -> Logits:
    """The logits after each token, `[tokens, vocab]`."""
    age = np.arange(len(tokens))[:, None] - np.arange(len(tokens))[None]
    mask = mx.array((age >= 0) & (age < (plan.cap or len(tokens))))
    caches = [Through(codec, mask) for codec in plan.codecs]
    return np.array(network(mx.array([tokens]), cache=caches)[0])


def assert_near(got: Logits, expected: Logits) -> None:
    np.testing.assert_allclose(got, expected, atol=NEAR)


def flat(layers: Layers) -> list[np.ndarray]:
    return [np.array(part) for layer in layers for part in layer]


# Prompts.


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([80], id="whole"),
        pytest.param([1] * 10 + [50] + [1] * 20, id="ones"),
        pytest.param([7] * 11 + [3], id="sevens"),
        pytest.param([64, 16], id="64"),
    ],
)
def test_prompt_in_chunks_equals_the_whole(
    network: nn.Module, plan: KVPlan, chunks: list[int]
) -> None:
    tokens = text(80)
    caches = row_caches(network, plan)
    expected = wanted(network, plan, tokens)
    start = 0
    for length in chunks:
        stop = start + length
        logits = network(mx.array([tokens[start:stop]]), cache=caches)[0]
        assert_near(np.array(logits), expected[start:stop])
        start = stop
    assert start == 80


def test_mode_is_seen(network: nn.Module, plan: KVPlan) -> None:
    """Were the tolerance wider than what a mode does, the tests here would find nothing."""
    tokens = text(80)
    exact = wanted(network, KVPlan(codecs=(None,) * 3), tokens)
    assert np.abs(wanted(network, plan, tokens) - exact).max() > 20 * NEAR


@pytest.mark.slow
def test_prompt_outgrows_its_columns(network: nn.Module, plan: KVPlan) -> None:
    caches = row_caches(network, plan)
    tokens = text(290)
    for start, stop in ((0, 250), (250, 257), (257, 258), (258, 290)):
        logits = network(mx.array([tokens[start:stop]]), cache=caches)[0]
    assert {cache.offset for cache in caches} == {290}
    assert_near(np.array(logits)[-1], wanted(network, plan, tokens)[-1])


# Rows that decode.


def test_rows_of_mixed_lengths_equal_rows_alone(network: nn.Module, steady: KVPlan) -> None:
    """They join one by one, one leaves and another moves into its place, a fourth comes."""
    rows = [text(n + 8, seed) for seed, n in enumerate((40, 9, 70, 23))]
    expected = [wanted(network, steady, row) for row in rows]
    kv = batch(network, steady)
    for row in rows[:3]:
        kv.join(read(network, steady, row[:-8], chunk=16))
    here, at = [0, 1, 2], [len(row) - 9 for row in rows]
    for turn in range(8):
        if turn == 3:
            kv.leave(0)
            here = [2, 1]
        if turn == 5:
            kv.join(read(network, steady, rows[3][:-8]))
            here.append(3)
        logits = step(network, kv, [rows[row][at[row]] for row in here])
        for got, row in zip(logits, here, strict=True):
            assert_near(got, expected[row][at[row]])
            at[row] += 1


def test_rows_of_one_length_equal_rows_alone(network: nn.Module, steady: KVPlan) -> None:
    rows = [text(30, seed) for seed in range(3)]
    kv = batch(network, steady)
    for row in rows:
        kv.join(read(network, steady, row[:-2]))
    for turn in (-3, -2):
        logits = step(network, kv, [row[turn] for row in rows])
    assert kv.mask is None
    for got, row in zip(logits, rows, strict=True):
        assert_near(got, wanted(network, steady, row)[-2])


def test_delegated_batch_equals_rows_alone(network: nn.Module) -> None:
    plan = plan_of(network, DELEGATED)
    rows = [text(n + 6, seed) for seed, n in enumerate((40, 9, 150))]
    expected = []
    for row in rows:
        alone = batch(network, plan, slots=1)
        alone.join(read(network, plan, row[:-6]))
        expected.append([step(network, alone, [token])[0] for token in row[-7:-1]])
    kv = batch(network, plan)
    for row in rows:
        kv.join(read(network, plan, row[:-6], chunk=32))
    here = [0, 1, 2]
    for turn in range(6):
        if turn == 4:
            kv.leave(0)
            here = [2, 1]
        logits = step(network, kv, [rows[row][turn - 7] for row in here])
        for got, row in zip(logits, here, strict=True):
            assert_near(got, expected[row][turn])


def test_cohort_rows_decode_as_alone(network: nn.Module, plan: KVPlan) -> None:
    rows = [text(n, seed) for seed, n in enumerate((30, 9, 100))]
    heads = [[*row[:-1], *[0] * (100 - len(row))] for row in rows]
    caches = row_caches(network, plan)
    network(mx.array(heads), cache=caches)
    together = Prefilled(caches, tuple(len(row) - 1 for row in rows))
    kv = batch(network, plan)
    for index in (2, 0, 1):
        kv.join(together, index)
    logits = step(network, kv, [rows[index][-1] for index in (2, 0, 1)])
    for got, index in zip(logits, (2, 0, 1), strict=True):
        alone = batch(network, plan)
        alone.join(read(network, plan, rows[index]))
        assert_near(got, step(network, alone, rows[index][-1:])[0])


def test_choices_of_one_prefill_share_nothing(network: nn.Module, plan: KVPlan) -> None:
    prompt = text(20)
    prefilled = read(network, plan, prompt)
    before = flat(row_parts(prefilled.caches, 0, 0, 19))
    kv = batch(network, plan)
    for _ in range(3):
        kv.join(prefilled)
    step(network, kv, prompt[-1:] * 3)
    logits = step(network, kv, [1, 2, 3])
    for token, got in zip((1, 2, 3), logits, strict=True):
        alone = batch(network, plan)
        alone.join(read(network, plan, prompt))
        step(network, alone, prompt[-1:])
        assert_near(got, step(network, alone, [token])[0])
    for got, was in zip(flat(row_parts(prefilled.caches, 0, 0, 19)), before, strict=True):
        np.testing.assert_array_equal(got, was)


def test_no_byte_stays_when_the_last_row_leaves(network: nn.Module, plan: KVPlan) -> None:
    kv = batch(network, plan)
    for n in (5, 9):
        kv.join(read(network, plan, text(n)))
    step(network, kv, [1, 2])
    kv.leave(0)
    kv.leave(0)
    assert (len(kv), kv.nbytes) == (0, 0)
    kv.check()


def test_ragged_kernel_is_for_plain_kv_alone(
    network: nn.Module, plan: KVPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "knows_ragged_rows", lambda network: True)
    batches = [batch_for(network, 4, one, Backend.CUDA) for one in (plan, KVPlan())]
    assert [isinstance(kv, RaggedKV) and kv.needs_no_mask for kv in batches] == [False, True]


# Rows that are kept, and adopted.


def test_row_goes_on_from_what_was_taken_out_of_a_batch(network: nn.Module, steady: KVPlan) -> None:
    row, other = text(90, 1), text(50, 1)
    kv = batch(network, steady)
    kv.join(read(network, steady, other))
    kv.join(read(network, steady, row[:60]))
    for token in row[59:66]:
        step(network, kv, [1, token])
    pieces = [(Segment(kv.extract(1, a, b), b - a), b - a) for a, b in ((0, 32), (32, 66))]
    taken = joined(pieces, room=70)
    before = flat(pieces[0][0].layers)
    prefilled = read_on(network, caches_from(taken, 66, steady), row, 66, chunk=9)
    adopted = batch(network, steady)
    adopted.join(prefilled)
    assert_near(step(network, adopted, row[-1:])[0], wanted(network, steady, row)[-1])
    for got, was in zip(flat(pieces[0][0].layers), before, strict=True):
        np.testing.assert_array_equal(got, was)


def test_delegated_row_that_was_adopted_begins_without_recent_values(network: nn.Module) -> None:
    """Nothing is read besides: it sees of its prefix what `fp16+turbo4` keeps."""
    plan, packed = plan_of(network, DELEGATED), plan_of(network, "fp16+turbo4")
    row = text(61)
    parts = row_parts(read(network, plan, row).caches, 0, 0, 60)
    kv = batch(network, plan)
    kv.join(Prefilled(caches_from(joined([(Segment(parts, 60), 60)], room=0), 60, plan), (60,)))
    adopted = step(network, kv, row[-1:])[0]
    cold = batch(network, plan)
    cold.join(read(network, plan, row))
    # The value of the newest token itself is exact here and packed there.
    assert np.abs(adopted - wanted(network, packed, row)[-1]).max() < 20 * NEAR
    assert np.abs(adopted - step(network, cold, row[-1:])[0]).max() > NEAR


# The cap.


@pytest.mark.parametrize("name", ["int8", "uniform-4", "uniform-8-skip"])
def test_rows_under_a_cap_equal_rows_alone(network: nn.Module, name: str) -> None:
    plan = plan_of(network, name, cap=64)
    assert plan.cap == 64
    lengths = (100, 30, 62)
    rows = [text(n + 6, seed) for seed, n in enumerate(lengths)]
    expected = [wanted(network, plan, row) for row in rows]
    kv = batch(network, plan)
    for row in rows:
        kv.join(read(network, plan, row[:-6], chunk=24))
    for turn in range(6):
        logits = step(network, kv, [row[turn - 7] for row in rows])
        for got, all_logits in zip(logits, expected, strict=True):
            assert_near(got, all_logits[turn - 7])
    assert [kv.has_dropped(place) for place in range(3)] == [True, False, True]


def test_kept_prefix_is_read_on_beyond_a_cap(network: nn.Module) -> None:
    plan = plan_of(network, "int8", cap=64)
    row = text(90)
    parts = row_parts(read(network, plan, row[:51]).caches, 0, 0, 50)
    caches = caches_from(joined([(Segment(parts, 50), 50)], room=256), 50, plan)
    kv = batch(network, plan)
    kv.join(read_on(network, caches, row, 50, chunk=20))
    assert_near(step(network, kv, row[-1:])[0], wanted(network, plan, row)[-1])


# Memory.


@pytest.mark.parametrize(
    ("name", "key_bits", "value_bits"),
    [
        ("int8", 8 + 16 / 64, 8 + 16 / 64),
        ("fp16+turbo4", 32, 4 + 16 / 64),
        ("turbo4", 4 + 16 / 64, 4 + 16 / 64),
        ("fp16+turbo3", 32, 7 * 32 / 64 + 16 / 64),
        ("uniform-4", 4 + 64 / 64, 4 + 64 / 64),
    ],
)
def test_bytes_a_token_costs(
    network: nn.Module, name: str, key_bits: float, value_bits: float
) -> None:
    """Of a model in float32, with heads of 64."""
    kv = batch(network, plan_of(network, name))
    kv.join(read(network, plan_of(network, name), text(41)))
    kept = Segment(kv.extract(0, 0, 40), 40)
    assert kept.nbytes == 40 * 3 * 2 * 64 * (key_bits + value_bits) / 8


def test_recent_values_of_a_batch_are_bounded(network: nn.Module) -> None:
    """128 values of each layer and row, whatever their lengths."""
    sizes = []
    for name in (DELEGATED, "fp16+turbo4"):
        kv = batch(network, plan_of(network, name))
        kv.join(read(network, plan_of(network, name), text(300)))
        step(network, kv, [1])
        sizes.append(kv.nbytes)
    assert sizes[0] - sizes[1] == 3 * 2 * 128 * 64 * 4
