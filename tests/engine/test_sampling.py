"""Sampling on fixed logits, against a plain NumPy reference."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.sampling import Dry, SamplingParams
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.draws import uniforms
from mlxcel.engine.sampling.history import History
from mlxcel.engine.sampling.penalties import DryPenalties
from mlxcel.engine.sampling.state import initial_state

import mlx.core as mx  # isort: skip

LOGITS = [2.0, 1.0, 0.0, -1.0]
DRAWS = 3000


def sample(
    rows: list[SamplingParams],
    logits: mx.array,
    positions: list[int],
    said: list[list[int]] | None = None,
) -> list[int]:
    """Tokens of one step; `said` is what each row has said before."""
    history = History()
    for row, tokens in zip(rows, said or [[]] * len(rows), strict=True):
        history.join(tokens, row.history_width)
    sampler = BatchSampler(rows, logits.shape[-1])
    state = mx.array([initial_state(row) for row in rows])
    tokens: list[int] = sampler(logits, positions, history.tokens, state).tokens.tolist()
    return tokens


def frequencies(params: SamplingParams, logits: list[float]) -> dict[int, float]:
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(DRAWS)]
    tokens = sample(rows, mx.array([logits] * DRAWS), [0] * DRAWS)
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
        # std of the logits is 1.118: at least 2 - 1.118 stays.
        pytest.param(SamplingParams(top_n_sigma=1.0), [0, 1], id="top-n-sigma"),
        # H = 0.95; distances from it: id 1 .49, id 0 .51, id 2 1.49, id 3 2.49.
        pytest.param(SamplingParams(typical_p=0.2), [1], id="typical-nearest-to-entropy"),
        pytest.param(SamplingParams(typical_p=0.8), [0, 1], id="typical"),
        pytest.param(
            SamplingParams(xtc_probability=1.0, xtc_threshold=0.08),
            [2, 3],
            id="xtc-least-stays",
        ),
        pytest.param(
            SamplingParams(xtc_probability=1.0, xtc_threshold=0.08, xtc_spared=(1,)),
            [0, 1, 2, 3],
            id="xtc-spares",
        ),
        pytest.param(
            SamplingParams(xtc_probability=1.0, xtc_threshold=0.3), [0, 1, 2, 3], id="xtc-needs-two"
        ),
        pytest.param(SamplingParams(bias=((0, -np.inf),)), [1, 2, 3], id="bias-bans"),
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
    assert sample([params], mx.array([LOGITS]), [3]) == [0]


def test_each_row_has_its_own_parameters() -> None:
    rows = [
        SamplingParams(temperature=0),
        SamplingParams(top_k=2, seed=1),
        SamplingParams(temperature=0),
        SamplingParams(seed=2),
    ]
    logits = mx.array(np.random.default_rng(0).normal(size=(4, 300)).astype(np.float32))
    together = sample(rows, logits, [0, 5, 9, 2])
    for i, position in enumerate([0, 5, 9, 2]):
        assert sample([rows[i]], logits[i : i + 1], [position]) == [together[i]]


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


def test_xtc_happens_with_its_probability() -> None:
    seen = frequencies(SamplingParams(xtc_probability=0.5, xtc_threshold=0.08), LOGITS)
    never = expected([0, 1, 2, 3], 1.0)[0]
    assert seen[0] == pytest.approx(never / 2, abs=0.035)


def greedy(said: list[int], logits: list[float], **params: Any) -> int:
    (token,) = sample([SamplingParams(temperature=0, **params)], mx.array([logits]), [0], [said])
    return token


@pytest.mark.parametrize(
    ("params", "said", "token"),
    [
        pytest.param({}, [0], 0, id="off"),
        pytest.param({"repetition_penalty": 2.5}, [0], 1, id="repetition-divides-positive"),
        pytest.param({"repetition_penalty": 2.5}, [3], 0, id="repetition-of-another"),
        pytest.param({"presence_penalty": 1.5}, [0], 1, id="presence-once"),
        pytest.param({"frequency_penalty": 0.6}, [0], 0, id="frequency-once-is-not-enough"),
        pytest.param({"frequency_penalty": 0.6}, [0, 0], 1, id="frequency-twice"),
        pytest.param({"presence_penalty": 1.5}, [0, 5, 5], 1, id="inside-the-window"),
        pytest.param(
            {"presence_penalty": 1.5, "penalty_window": 2}, [0, 5, 5], 0, id="left-the-window"
        ),
        pytest.param({"presence_penalty": 1.5, "penalty_window": 0}, [0], 0, id="window-0-is-off"),
        pytest.param({"bias": ((2, 2.5),)}, [], 2, id="bias-adds"),
        pytest.param({"bias": ((2, 1.0), (2, 1.5))}, [], 2, id="biases-add-up"),
    ],
)
def test_penalties_change_the_likeliest(
    params: dict[str, Any], said: list[int], token: int
) -> None:
    assert greedy(said, [2.0, 1.0, 0.0, -1.0, -1.0, -1.0], **params) == token


def test_repetition_multiplies_negative_logits() -> None:
    assert greedy([0], [-1.0, -1.5, -9.0], repetition_penalty=2.0) == 1


def dry(**changes: Any) -> Dry:
    values = {"multiplier": 2.0, "base": 1.75, "allowed_length": 2, "window": 64}
    return Dry(**(values | changes))


@pytest.mark.parametrize(
    ("rule", "said", "token"),
    [
        pytest.param(dry(), [1, 2, 0, 1, 2], 3, id="would-repeat-1-2-0"),
        pytest.param(dry(), [9, 2, 0, 1, 2], 0, id="too-short-a-repeat"),
        pytest.param(dry(allowed_length=3), [1, 2, 0, 1, 2], 0, id="allowed"),
        pytest.param(dry(breakers=(2,)), [1, 2, 0, 1, 2], 0, id="breaker-cuts"),
        pytest.param(dry(window=3), [1, 2, 0, 1, 2], 0, id="left-the-window"),
        pytest.param(dry(multiplier=0.5), [1, 2, 0, 1, 2], 0, id="penalty-smaller-than-the-gap"),
        pytest.param(
            dry(multiplier=0.5), [7, 8, 1, 2, 0, 7, 8, 1, 2], 3, id="grows-with-the-length"
        ),
    ],
)
def test_dry_makes_a_longer_repetition_less_likely(rule: Dry, said: list[int], token: int) -> None:
    logits = [2.0, -5.0, -5.0, 1.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0]
    assert greedy(said, logits, dry=rule) == token


def reference_dry(rule: Dry, said: list[int], vocab: int) -> np.ndarray:
    """The rule spelled out: for every earlier place, how long a suffix ends there."""
    tail = said[-rule.window :]
    worst = np.zeros(vocab)
    for end in range(len(tail) - 1):
        length = 0
        while length <= end and tail[end - length] == tail[-1 - length]:
            if tail[-1 - length] in rule.breakers:
                break
            length += 1
        if length >= max(rule.allowed_length, 1):
            penalty = rule.multiplier * rule.base ** (length - rule.allowed_length)
            worst[tail[end + 1]] = max(worst[tail[end + 1]], penalty)
    return worst


@given(
    said=st.lists(st.integers(0, 3), max_size=40),
    window=st.integers(1, 48),
    allowed=st.integers(0, 4),
    breaker=st.integers(0, 5),
)
def test_dry_equals_the_rule_spelled_out(
    said: list[int], window: int, allowed: int, breaker: int
) -> None:
    rule = dry(window=window, allowed_length=allowed, breakers=(breaker,))
    history = History()
    history.join(said, 48)
    changed = DryPenalties([rule], 6)(mx.zeros((1, 6)), history.tokens)
    np.testing.assert_allclose(-np.array(changed[0]), reference_dry(rule, said, 6), rtol=1e-4)


def test_history_follows_its_rows() -> None:
    history = History()
    history.join([1, 2, 3], 2)
    history.join([4], 3)
    history.join([5, 6, 7, 8], 0)
    assert history.tokens.tolist() == [[-1, 2, 3], [-1, -1, 4], [6, 7, 8]]
    history.push(mx.array([9, 9, 9]))
    history.leave(0)
    assert history.tokens.tolist() == [[7, 8, 9], [-1, 4, 9]]
    history.leave(1)
    history.leave(0)
    assert history.tokens.shape == (0, 0)
