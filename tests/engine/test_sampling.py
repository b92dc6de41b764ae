"""Sampling on fixed logits, against a plain NumPy reference."""

import numpy as np
import pytest

from mlxcel.core.request import SamplingParams
from mlxcel.engine.sampling import BatchSampler, uniforms

import mlx.core as mx  # isort: skip

LOGITS = [2.0, 1.0, 0.0, -1.0]
DRAWS = 3000


def frequencies(params: SamplingParams, logits: list[float]) -> dict[int, float]:
    rows = [
        SamplingParams(
            temperature=params.temperature, top_k=params.top_k, top_p=params.top_p,
            min_p=params.min_p, seed=seed,
        )
        for seed in range(DRAWS)
    ]  # fmt: skip
    tokens = BatchSampler(rows)(mx.array([logits] * DRAWS), [0] * DRAWS).tolist()
    ids, counts = np.unique(tokens, return_counts=True)
    return dict(zip(ids.tolist(), (counts / DRAWS).tolist(), strict=True))


def expected(kept: list[int], temperature: float) -> dict[int, float]:
    weights = {i: float(np.exp(LOGITS[i] / temperature)) for i in kept}
    total = sum(weights.values())
    return {i: w / total for i, w in weights.items()}


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        pytest.param(SamplingParams(), [0, 1, 2, 3], id="plain"),
        pytest.param(SamplingParams(top_p=0.85), [0, 1], id="top-p"),
        pytest.param(SamplingParams(min_p=0.2), [0, 1], id="min-p"),
        pytest.param(SamplingParams(top_k=2), [0, 1], id="top-k"),
        pytest.param(SamplingParams(top_k=3, top_p=0.95), [0, 1, 2], id="top-k-then-top-p"),
        pytest.param(SamplingParams(top_p=0.0001), [0], id="never-empty"),
        pytest.param(
            SamplingParams(temperature=5.0, top_p=0.85), [0, 1], id="truncation-sees-untempered"
        ),
        pytest.param(SamplingParams(temperature=0.5, min_p=0.05), [0, 1, 2], id="tempered-after"),
    ],
)
def test_draws_follow_the_reference_distribution(params: SamplingParams, kept: list[int]) -> None:
    seen = frequencies(params, LOGITS)
    want = expected(kept, params.temperature)
    assert set(seen) == set(want)
    for token, share in want.items():
        assert seen[token] == pytest.approx(share, abs=0.035)


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(SamplingParams(temperature=0), id="temperature-0"),
        pytest.param(SamplingParams(temperature=2.0, top_k=1), id="top-k-1"),
    ],
)
def test_greedy_takes_the_largest(params: SamplingParams) -> None:
    assert BatchSampler([params])(mx.array([LOGITS]), [3]).tolist() == [0]


def test_each_row_has_its_own_parameters() -> None:
    rows = [
        SamplingParams(temperature=0),
        SamplingParams(top_k=2, seed=1),
        SamplingParams(temperature=0),
        SamplingParams(seed=2),
    ]
    logits = mx.array(np.random.default_rng(0).normal(size=(4, 300)).astype(np.float32))
    together = BatchSampler(rows)(logits, [0, 5, 9, 2]).tolist()
    for i, position in enumerate([0, 5, 9, 2]):
        assert BatchSampler([rows[i]])(logits[i : i + 1], [position]).tolist() == [together[i]]


def test_uniforms_depend_on_seed_and_position_alone() -> None:
    seeds = np.array([1, 1, 2], dtype=np.uint64)
    first = uniforms(seeds, np.array([0, 1, 0], dtype=np.uint64))
    again = uniforms(seeds[::-1].copy(), np.array([0, 1, 0], dtype=np.uint64))
    assert len(set(first.tolist())) == 3
    assert first[0] == again[2]


def test_uniforms_are_uniform() -> None:
    n = 40_000
    draws = uniforms(np.full(n, 7, dtype=np.uint64), np.arange(n, dtype=np.uint64))
    assert draws.min() >= 0
    assert draws.max() < 1
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    assert np.sum((counts - n / 20) ** 2 / (n / 20)) < 45  # chi-square, 19 degrees: p > 0.001
