"""Samplers that remember a row: mirostat and adaptive-p against their formulas in NumPy, and the
state they keep."""

import msgspec
import numpy as np
import pytest

from mlxcel.core.sampling import AdaptiveP, DynamicTemperature, Mirostat, SamplingParams
from mlxcel.engine.sampling.batch import BatchSampler, Drawn
from mlxcel.engine.sampling.draws import uniforms
from mlxcel.engine.sampling.state import RowState, initial_state

import mlx.core as mx  # isort: skip

VOCAB = 3000
STEPS = 12


def softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max())
    result: np.ndarray = weights / weights.sum()
    return result


def inverted(p: np.ndarray, seed: int, position: int) -> int:
    numbers = uniforms(np.array([seed], dtype=np.uint64), np.array([position], dtype=np.uint64))
    return int(np.searchsorted(np.cumsum(p) / p.sum(), numbers[0], side="right"))


def stepwise(params: SamplingParams, logits: np.ndarray) -> list[tuple[int, float, float]]:
    """Token and state after each of `STEPS` draws; step i sees row i of `logits`."""
    sampler, state = BatchSampler([params], VOCAB), RowState()
    state.join(initial_state(params))
    said = []
    for position in range(STEPS):
        drawn = sampler(
            mx.array(logits[position : position + 1]), [position], mx.zeros((1, 0), mx.int32),
            state.values,
        )  # fmt: skip
        state.take(drawn.state)
        said.append((int(drawn.tokens.item()), *state.row(0)))
    return said


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(5).normal(scale=2.0, size=(STEPS, VOCAB)).astype(np.float32)


def zipf_count(p: np.ndarray, mu: float) -> int:
    """Version 1, as the paper's algorithm 1 has it."""
    head = np.sort(p)[::-1][:100]
    t = np.log([(i + 2) / (i + 1) for i in range(99)])
    b = np.log(head[:-1] / head[1:])
    s = (t * b).sum() / (t * t).sum()
    e = s - 1
    k = ((e * 2**mu) / (1 - len(p) ** -e)) ** (1 / s)
    return int(np.clip(k, 1, len(p)))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("target", [3.0, 7.0])
def test_mirostat_is_its_formula(version: int, target: float, logits: np.ndarray) -> None:
    rule = Mirostat(version=version, rate=0.3, target=target)
    params = SamplingParams(temperature=0.9, mirostat=rule, seed=11)
    mu = 2 * target
    for position, (token, bound, spare) in enumerate(stepwise(params, logits)):
        p = softmax(logits[position].astype(np.float64) / 0.9)
        if version == 1:
            kept = np.zeros(VOCAB, dtype=bool)
            kept[np.argsort(-p, kind="stable")[: zipf_count(p, mu)]] = True
        else:
            kept = -np.log2(p) <= mu
            kept[p.argmax()] = True
        assert token == inverted(np.where(kept, p, 0.0), 11, position)
        mu -= 0.3 * (-np.log2(p[token]) - target)
        assert bound == pytest.approx(mu, abs=2e-4)
        assert spare == 0


def test_mirostat_keeps_the_surprise_near_its_target() -> None:
    logits = np.random.default_rng(1).normal(scale=3.0, size=VOCAB).astype(np.float32)
    params = SamplingParams(mirostat=Mirostat(version=2, rate=0.1, target=2.0))
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(8)]
    sampler, state = BatchSampler(rows, VOCAB), mx.array([initial_state(params)] * 8)
    surprise = []
    for position in range(150):
        drawn = sampler(
            mx.array(np.tile(logits, (8, 1))), [position] * 8, mx.zeros((8, 0), mx.int32), state
        )
        state = drawn.state
        surprise.append(-np.log2(softmax(logits)[np.array(drawn.tokens)]))
    assert np.mean(surprise[50:]) == pytest.approx(2.0, abs=0.3)
    assert -np.log2(softmax(logits)).dot(softmax(logits)) > 3  # what it would be without


def test_mirostat_takes_the_place_of_penalties_and_truncation() -> None:
    rule = Mirostat(version=2, rate=0.1, target=30.0)
    params = SamplingParams(mirostat=rule, top_p=0.001, presence_penalty=100.0, top_k=2)
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(200)]
    sampler = BatchSampler(rows, 4)
    history = mx.zeros((200, 1), mx.int32)
    state = mx.array([initial_state(params)] * 200)
    drawn = sampler(mx.array([[2.0, 1.0, 0.0, -1.0]] * 200), [0] * 200, history, state)
    assert set(drawn.tokens.tolist()) == {0, 1, 2, 3}


def test_a_low_bound_still_keeps_the_likeliest(logits: np.ndarray) -> None:
    for version in (1, 2):
        rule = Mirostat(version=version, rate=0.1, target=-50.0)
        token, _, _ = stepwise(SamplingParams(mirostat=rule), logits)[0]
        assert token == logits[0].argmax()


@pytest.mark.parametrize("truncation", [{}, {"min_p": 0.02}, {"top_k": 30}], ids=str)
def test_adaptive_p_is_its_formula(truncation: dict[str, float], logits: np.ndarray) -> None:
    params = SamplingParams(
        temperature=0.8, adaptive=AdaptiveP(target=0.3, decay=0.8), seed=3, **truncation
    )
    total, weight = 0.3 / 0.2, 1 / 0.2
    for position, (token, now_total, now_weight) in enumerate(stepwise(params, logits)):
        raw = logits[position].astype(np.float64)
        order = np.argsort(-raw, kind="stable")
        if "top_k" in truncation:
            order = order[:30]
        else:
            p = softmax(raw)
            order = np.flatnonzero(p >= truncation.get("min_p", 0) * p.max())
        p = softmax(raw[order] / 0.8)
        aim = np.clip(2 * 0.3 - total / weight, 0, 1)
        distance = np.abs(p - aim) / 0.3
        steered = np.exp(5.0 - 10.0 * distance**2 / (1 + distance))
        place = inverted(steered, 3, position)
        assert token == order[place]
        total, weight = p[place] + 0.8 * total, 1 + 0.8 * weight
        assert (now_total, now_weight) == pytest.approx((total, weight), rel=1e-4)


def test_adaptive_p_with_a_negative_target_is_off(logits: np.ndarray) -> None:
    off = SamplingParams(adaptive=AdaptiveP(target=-1.0, decay=0.9), seed=4)
    tokens = [token for token, _, _ in stepwise(off, logits)]
    assert tokens == [token for token, _, _ in stepwise(SamplingParams(seed=4), logits)]


def test_initial_state() -> None:
    mirostat = Mirostat(version=2, rate=0.1, target=5.0)
    adaptive = AdaptiveP(target=0.5, decay=0.9)
    assert initial_state(SamplingParams()) == (0, 0)
    assert initial_state(SamplingParams(mirostat=mirostat)) == (10, 0)
    assert initial_state(SamplingParams(mirostat=mirostat, temperature=0)) == (0, 0)
    assert initial_state(SamplingParams(adaptive=adaptive)) == pytest.approx((5, 10))
    assert initial_state(SamplingParams(adaptive=AdaptiveP(target=-1, decay=0.9))) == (0, 0)
    extreme = AdaptiveP(target=0.5, decay=1.0)
    assert initial_state(SamplingParams(adaptive=extreme)) == pytest.approx((50, 100))


def test_state_follows_its_rows() -> None:
    state = RowState()
    assert state.values.shape == (0, 2)
    for values in [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]:
        state.join(values)
    state.leave(0)
    assert state.values.tolist() == [[5, 6], [3, 4]]
    assert state.row(1) == (3, 4)
    state.take(mx.array([[7.0, 8.0], [9.0, 10.0]]))
    state.leave(1)
    assert state.values.tolist() == [[7, 8]]
    state.leave(0)
    assert state.values.shape == (0, 2)


def test_a_row_goes_on_where_it_left(logits: np.ndarray) -> None:
    """Preempted after five draws, with its state read and given back: the same text."""
    params = SamplingParams(mirostat=Mirostat(version=2, rate=0.4, target=4.0), seed=8)
    whole = stepwise(params, logits)
    kept = whole[4][1:]
    state = RowState()
    state.join(kept)
    sampler = BatchSampler([params], VOCAB)
    for position in range(5, STEPS):
        drawn: Drawn = sampler(
            mx.array(logits[position : position + 1]), [position], mx.zeros((1, 0), mx.int32),
            state.values,
        )  # fmt: skip
        state.take(drawn.state)
        assert (int(drawn.tokens.item()), *state.row(0)) == whole[position]


def test_dynamic_temperature_moves_with_the_entropy() -> None:
    """One sure token: about T - span; all equal: T + span. Seen through how often id 0 is drawn."""
    rule = DynamicTemperature(span=0.9, exponent=1.0)
    rows = [SamplingParams(dynamic_temperature=rule, seed=seed) for seed in range(2000)]
    logits = np.array([3.0, 0.0])
    p = softmax(logits)
    share = -(p * np.log(p)).sum() / np.log(2)
    want = softmax(logits / (0.1 + 1.8 * share))[0]
    sampler = BatchSampler(rows, 2)
    drawn = sampler(
        mx.array([[3.0, 0.0]] * 2000), [0] * 2000, mx.zeros((2000, 0), mx.int32),
        mx.zeros((2000, 2)),
    )  # fmt: skip
    assert np.mean(np.array(drawn.tokens) == 0) == pytest.approx(want, abs=0.01)
    assert abs(want - p[0]) > 0.03
