"""What a request is taken to need, and the guard that refuses it."""

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.errors import RequestMemoryExceeded
from mlxcel.engine.kv.choose import row_caches
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.memory.estimate import request_bytes
from mlxcel.engine.memory.guard import RequestGuard
from mlxcel.weights.card import MemoryCard, memory_card
from mlxcel.weights.load import load_model
from tests.tiny.checkpoint import build_tiny_checkpoint

CARD = MemoryCard(
    weights_bytes=1_000_000,
    attention_layers=3,
    kv_heads=2,
    head_dim=16,
    kv_dtype_bytes=2,
    state_bytes=500,
    hidden=64,
    widest_projection=128,
    vocab=256,
)
TOKEN = 3 * 2 * 2 * 16 * 2
FORWARD = (4 * 64 + 2 * 128) * 4
BESIDE = 1_000_000 + 500 + 256 * 4


@pytest.mark.parametrize(
    ("prompt", "planned", "chunk", "expected"),
    [
        pytest.param(100, 50, 0, BESIDE + 256 * TOKEN + 100 * FORWARD, id="whole"),
        pytest.param(200, 56, 0, BESIDE + 256 * TOKEN + 200 * FORWARD, id="256-tokens"),
        pytest.param(200, 57, 0, BESIDE + 512 * TOKEN + 200 * FORWARD, id="257-tokens"),
        pytest.param(1000, 0, 128, BESIDE + 1024 * TOKEN + 128 * FORWARD, id="in-chunks"),
        pytest.param(100, 0, 128, BESIDE + 256 * TOKEN + 100 * FORWARD, id="less-than-a-chunk"),
    ],
)
def test_estimate_by_the_formula(prompt: int, planned: int, chunk: int, expected: int) -> None:
    assert request_bytes(CARD, prompt, planned, chunk) == expected


def test_kv_under_a_cap_is_the_cap_and_a_chunk() -> None:
    capped = request_bytes(CARD, 10_000, 10_000, 128, cap=128)
    assert capped == BESIDE + 256 * TOKEN + 128 * FORWARD
    assert request_bytes(CARD, 50, 10, 128, cap=512) == request_bytes(CARD, 50, 10, 128)


@pytest.mark.parametrize(
    ("chunk", "cap", "scores"),
    [(0, 0, 1000 * 1000), (100, 0, 100 * 1000), (100, 64, 100 * 164)],
    ids=["whole", "in-chunks", "under-a-cap"],
)
def test_scores_and_their_softmax_count_where_attention_is_not_fused(
    chunk: int, cap: int, scores: int
) -> None:
    unfused = replace(CARD, unfused_heads=4)
    more = request_bytes(unfused, 1000, 0, chunk, cap=cap)
    assert more - request_bytes(CARD, 1000, 0, chunk, cap=cap) == 2 * 4 * scores * 4


@given(
    prompt=st.integers(1, 5000),
    planned=st.integers(0, 5000),
    more=st.integers(0, 500),
    chunk=st.sampled_from([0, 256, 2048]),
    cap=st.sampled_from([0, 64, 1024]),
)
def test_more_tokens_never_need_less(
    prompt: int, planned: int, more: int, chunk: int, cap: int
) -> None:
    least = request_bytes(CARD, prompt, planned, chunk, cap=cap)
    assert request_bytes(CARD, prompt + more, planned, chunk, cap=cap) >= least
    assert request_bytes(CARD, prompt, planned + more, chunk, cap=cap) >= least


def test_guard_refuses_by_one_byte() -> None:
    needed = request_bytes(CARD, 1000, 100, 256)
    RequestGuard(needed, CARD, 256).check(1000, 100)
    with pytest.raises(RequestMemoryExceeded) as refused:
        RequestGuard(needed - 1, CARD, 256).check(1000, 100)
    assert (refused.value.code, refused.value.status) == ("request_memory_budget_exceeded", 503)


def test_guard_serves_a_smaller_request_later() -> None:
    guard = RequestGuard(request_bytes(CARD, 500, 0, 256), CARD, 256)
    with pytest.raises(RequestMemoryExceeded):
        guard.check(5000, 0)
    guard.check(500, 0)


def test_guard_without_a_budget_refuses_nothing() -> None:
    RequestGuard(None, CARD, 256).check(1 << 40, 1 << 40)


def test_guard_knows_the_cap() -> None:
    RequestGuard(request_bytes(CARD, 5000, 0, 256, cap=64), CARD, 256, cap=64).check(50_000, 0)


@pytest.mark.parametrize("chunk", [0, 128], ids=["whole", "in-chunks"])
def test_estimate_is_near_what_mlx_allocates(tmp_path: Path, chunk: int) -> None:
    """A prompt of 500 tokens through a network whose weights do not drown the rest."""
    folder = build_tiny_checkpoint(tmp_path / "wide", hidden=256, heads=8, kv_heads=4)
    options = {"path": folder, "precision": "float32", "batch": 1, "device": "cpu"}
    model = load_model(
        options
        | {"train_window": 512, "fuse_projections": "off", "weight_materialization": "eager"},
        lambda step, fraction: None,
    )
    card = memory_card(model)
    beside = mx.get_active_memory() - card.weights_bytes
    caches = row_caches(model.network, KVPlan())
    mx.reset_peak_memory()
    step = chunk or 500
    for start in range(0, 500, step):
        part = [(start + n) % 256 for n in range(min(step, 500 - start))]
        model.network(mx.array([part]), cache=caches)
        mx.eval([cache.state for cache in caches])
    used = mx.get_peak_memory() - beside
    assert 0.9 < request_bytes(card, 500, 0, chunk) / used < 1.6
