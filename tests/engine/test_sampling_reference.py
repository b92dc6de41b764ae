"""The chain against a NumPy reference that spells the contract's steps out, token by token."""

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.sampling import Dry, DynamicTemperature, SamplingParams
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.draws import XTC_SALT, uniforms
from mlxcel.engine.sampling.foremost import SORTED, foremost
from mlxcel.engine.sampling.group import HEADS, Kind, kind_of
from mlxcel.engine.sampling.history import History

import mlx.core as mx  # isort: skip

WIDTHS = (50, 5000)
"""Sorted and not."""
ROWS = 40
POSITION = 3


@dataclass
class Reference:
    """What one row may draw, as the contract has it: steps 1 to 12 in float64."""

    order: np.ndarray
    """Kept ids, likeliest first."""
    tempered: np.ndarray
    """Probabilities of them."""


def softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max())
    result: np.ndarray = weights / weights.sum()
    return result


def penalised(row: SamplingParams, logits: np.ndarray, said: list[int]) -> np.ndarray:
    """Steps 1 to 3."""
    logits = logits.astype(np.float64).copy()
    for token, value in row.bias:
        logits[token] += value
    window = said[-row.penalty_window :] if row.penalty_window else []
    for token in set(window):
        p = row.repetition_penalty
        logits[token] = logits[token] / p if logits[token] > 0 else logits[token] * p
        logits[token] -= row.frequency_penalty * window.count(token) + row.presence_penalty
    return logits


def shortest(mass: np.ndarray, share: float, floor: int) -> int:
    """How many of them, in order, hold the share; at least one, and `floor`."""
    return max(int(np.searchsorted(np.cumsum(mass), share * (1 - 1e-7))) + 1, floor)


def kept(row: SamplingParams, logits: np.ndarray, chance: float) -> np.ndarray:
    """Steps 6 to 11: ids, likeliest first, ties by lower id."""
    order = np.argsort(-logits, kind="stable")
    finite = logits[np.isfinite(logits)]
    order = order[: len(finite)]
    if row.top_n_sigma > 0:
        order = order[logits[order] >= logits.max() - row.top_n_sigma * finite.std()]
    if row.top_k > 0:
        order = order[: row.top_k]
    if row.typical_p < 1:
        p = softmax(logits[order])
        distance = np.abs(-np.log(p) + (p * np.log(p)).sum())
        nearest = np.argsort(distance, kind="stable")
        order = order[np.sort(nearest[: shortest(p[nearest], row.typical_p, row.min_keep)])]
    if row.top_p < 1:
        order = order[: shortest(softmax(logits[order]), row.top_p, row.min_keep)]
    p = softmax(logits[order])
    order = order[(p >= row.min_p * p.max()) | (np.arange(len(p)) < row.min_keep)]
    if row.xtc_probability > 0 and chance < row.xtc_probability:
        above = int((softmax(logits[order]) >= row.xtc_threshold).sum())
        dropped = order[: max(above - 1, 0)]
        is_enough = len(order) - len(dropped) >= row.min_keep
        if is_enough and not set(dropped.tolist()) & set(row.xtc_spared):
            order = order[len(dropped) :]
    return order


def tempered(row: SamplingParams, logits: np.ndarray) -> np.ndarray:
    """Step 12, over what is kept."""
    temperature = row.temperature
    rule = row.dynamic_temperature
    if rule is not None and len(logits) > 1:
        p = softmax(logits)
        share = -(p * np.log(p)).sum() / np.log(len(p))
        low, high = max(temperature - rule.span, 0), temperature + rule.span
        temperature = low + (high - low) * share**rule.exponent
    return softmax(logits / temperature)


def reference(row: SamplingParams, logits: np.ndarray, said: list[int]) -> Reference:
    logits = penalised(row, logits, said)
    ids = kept(row, logits, number(row, XTC_SALT))
    return Reference(ids, tempered(row, logits[ids]))


def number(row: SamplingParams, salt: np.uint64 = np.uint64(0)) -> float:  # noqa: B008
    seeds = np.array([row.seed], dtype=np.uint64) ^ salt
    return float(uniforms(seeds, np.array([POSITION], dtype=np.uint64))[0])


def drawn(row: SamplingParams, want: Reference) -> tuple[int, float]:
    """The token, and how far the number is from the border to another. Heads are inverted from
    the likeliest on, whole vocabularies by id."""
    places = np.arange(len(want.order))
    if kind_of(row) not in HEADS:
        places = np.argsort(want.order)
    borders = np.cumsum(want.tempered[places])
    place = int(np.searchsorted(borders, number(row), side="right"))
    margin = float(np.abs(borders[:-1] - number(row)).min(initial=1.0))
    return int(want.order[places[min(place, len(places) - 1)]]), margin


def sampled(rows: list[SamplingParams], logits: np.ndarray, said: list[int]) -> list[int]:
    history = History()
    for row in rows:
        history.join(said, row.history_width)
    batch = mx.array(np.tile(logits.astype(np.float32), (len(rows), 1)))
    sampler = BatchSampler(rows, logits.shape[0])
    state = mx.zeros((len(rows), 2))
    tokens: list[int] = sampler(
        batch, [POSITION] * len(rows), history.tokens, state
    ).tokens.tolist()
    return tokens


ALONE = [
    pytest.param(SamplingParams(), id="plain"),
    pytest.param(SamplingParams(temperature=0.3), id="temperature"),
    pytest.param(SamplingParams(top_k=7), id="top-k-head"),
    pytest.param(SamplingParams(top_k=200), id="top-k-wide-head"),
    pytest.param(SamplingParams(top_k=1500), id="top-k-whole"),
    pytest.param(SamplingParams(top_p=0.8), id="top-p"),
    pytest.param(SamplingParams(top_p=0.9999), id="top-p-nearly-all"),
    pytest.param(SamplingParams(min_p=0.02), id="min-p"),
    pytest.param(SamplingParams(typical_p=0.5), id="typical"),
    pytest.param(SamplingParams(top_n_sigma=1.5), id="top-n-sigma"),
    pytest.param(SamplingParams(top_n_sigma=0.4, top_k=40), id="top-n-sigma-in-a-head"),
    pytest.param(SamplingParams(xtc_probability=0.5, xtc_threshold=0.01), id="xtc"),
    pytest.param(
        SamplingParams(xtc_probability=1.0, xtc_threshold=0.01, xtc_spared=(4, 9)), id="xtc-spared"
    ),
    pytest.param(SamplingParams(top_p=0.2, min_keep=6), id="min-keep-top-p"),
    pytest.param(SamplingParams(top_p=0.2, top_k=40, min_keep=6), id="min-keep-top-p-in-a-head"),
    pytest.param(SamplingParams(min_p=0.9, min_keep=5), id="min-keep-min-p"),
    pytest.param(SamplingParams(min_p=0.9, top_k=40, min_keep=5), id="min-keep-min-p-in-a-head"),
    pytest.param(SamplingParams(typical_p=0.05, min_keep=7), id="min-keep-typical"),
    pytest.param(
        SamplingParams(typical_p=0.05, top_k=90, min_keep=7), id="min-keep-typical-in-a-head"
    ),
    pytest.param(SamplingParams(top_p=0.3, min_keep=2**31 - 1), id="min-keep-everything"),
    pytest.param(SamplingParams(top_k=3, top_p=0.3, min_keep=9), id="min-keep-under-top-k"),
    pytest.param(SamplingParams(top_n_sigma=0.4, min_keep=30), id="min-keep-not-of-top-n-sigma"),
    pytest.param(
        SamplingParams(top_k=9, xtc_probability=1.0, xtc_threshold=0.05, min_keep=6),
        id="min-keep-xtc",
    ),
    pytest.param(
        SamplingParams(
            top_p=0.5, typical_p=0.4, min_p=0.5, xtc_probability=0.5, xtc_threshold=0.1, min_keep=4
        ),
        id="min-keep-together",
    ),
    pytest.param(SamplingParams(repetition_penalty=1.8), id="repetition"),
    pytest.param(SamplingParams(frequency_penalty=0.7, penalty_window=5), id="frequency"),
    pytest.param(SamplingParams(presence_penalty=1.5), id="presence"),
    pytest.param(SamplingParams(bias=((1, 3.0), (2, -np.inf), (1, 1.0))), id="bias"),
    pytest.param(
        SamplingParams(dynamic_temperature=DynamicTemperature(span=0.8, exponent=1.5)),
        id="dynamic-temperature",
    ),
    pytest.param(
        SamplingParams(
            temperature=0.4, min_p=0.1,
            dynamic_temperature=DynamicTemperature(span=0.8, exponent=1.0),
        ),
        id="dynamic-temperature-from-0",
    ),
    pytest.param(SamplingParams(temperature=3.0, top_p=0.7), id="top-p-sees-untempered"),
    pytest.param(
        SamplingParams(
            temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, typical_p=0.9, top_n_sigma=2.5,
            xtc_probability=0.5, xtc_threshold=0.05, repetition_penalty=1.1, frequency_penalty=0.1,
        ),
        id="together-head",
    ),
    pytest.param(
        SamplingParams(
            temperature=1.3, top_p=0.97, min_p=0.001, typical_p=0.95, top_n_sigma=3.0,
            xtc_probability=0.5, xtc_threshold=0.02, presence_penalty=0.4,
            dynamic_temperature=DynamicTemperature(span=0.3, exponent=1.0),
        ),
        id="together-whole",
    ),
]  # fmt: skip


@pytest.mark.parametrize("vocab", WIDTHS)
@pytest.mark.parametrize("params", ALONE)
def test_each_draw_is_the_one_the_reference_makes(params: SamplingParams, vocab: int) -> None:
    logits = np.random.default_rng(vocab).normal(scale=2.5, size=vocab).astype(np.float32)
    said = [3, 3, 1, 17, 4, 4, 4, 9]
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(ROWS)]
    compared = 0
    for row, token in zip(rows, sampled(rows, logits, said), strict=True):
        want = reference(row, logits, said)
        assert token in want.order
        expected, margin = drawn(row, want)
        if margin > 2e-5:
            compared += 1
            assert token == expected
    assert compared > ROWS / 2


@pytest.mark.parametrize("vocab", WIDTHS)
@pytest.mark.parametrize("top_k", [0, 40])
def test_a_floor_under_one_row_leaves_its_neighbours_alone(top_k: int, vocab: int) -> None:
    logits = np.random.default_rng(vocab).normal(scale=2.5, size=vocab).astype(np.float32)
    plain = SamplingParams(top_k=top_k, top_p=0.3, typical_p=0.3, min_p=0.5)
    rows = [msgspec.structs.replace(plain, seed=seed) for seed in range(60)]
    floored = [msgspec.structs.replace(row, min_keep=8) for row in rows]
    mixed = sampled([*rows, *floored], logits, [])
    assert mixed[:60] == sampled(rows, logits, [])
    assert mixed[60:] == sampled(floored, logits, [])
    assert len(set(mixed[60:])) > len(set(mixed[:60]))


@pytest.mark.parametrize("vocab", WIDTHS)
@pytest.mark.parametrize("params", ALONE)
def test_odds_of_a_draw_are_those_of_the_reference(params: SamplingParams, vocab: int) -> None:
    """After everything; beside rows that ask for others, or for none."""
    logits = np.random.default_rng(vocab).normal(scale=2.5, size=vocab).astype(np.float32)
    said, most = [3, 3, 1, 17, 4, 4, 4, 9], 12
    row = msgspec.structs.replace(params, seed=5)
    rows = [SamplingParams(temperature=0), row, SamplingParams(top_p=0.9), row, row]
    history = History()
    for each in rows:
        history.join(said, each.history_width)
    sampler = BatchSampler(
        rows, vocab,
        top_logprobs=[0, None, 2, most, 0], post_sampling=[False, False, False, True, True],
    )  # fmt: skip
    batch = mx.array(np.tile(logits, (len(rows), 1)))
    drawn = sampler(batch, [POSITION] * len(rows), history.tokens, mx.zeros((len(rows), 2)))
    own, scores = drawn.scores
    assert (own.places, scores.places) == ([0, 2], [3, 4])
    want = reference(row, logits, said)
    token = int(np.array(drawn.tokens)[3])
    odds = dict(zip(want.order.tolist(), np.log(want.tempered).tolist(), strict=True))
    assert np.array(scores.said).tolist() == pytest.approx([odds[token]] * 2, abs=1e-3)
    best = sorted(odds.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    ids, values = np.array(scores.ids)[0], np.array(scores.values)[0]
    assert values[: len(best)].tolist() == pytest.approx([p for _, p in best], abs=1e-3)
    assert ids[: len(best)].tolist() == [token for token, _ in best]
    assert np.isneginf(values[len(best) :]).all()


def test_a_floor_under_one_row_does_not_blur_its_neighbours() -> None:
    """Over a whole vocabulary keys are told apart as finely as their range allows."""
    logits = np.full(5000, -900.0, dtype=np.float32)
    logits[[3, 7]] = 0.9999, 1.0
    rows = [SamplingParams(top_p=0.1, seed=seed) for seed in range(30)]
    floored = SamplingParams(top_p=0.1, min_keep=2)
    assert set(sampled([*rows, floored], logits, [])[:30]) == {7}


def test_the_example_of_the_contract() -> None:
    logits = np.array([2.0, 1.0, 0.0, -1.0])
    np.testing.assert_allclose(softmax(logits), [0.644, 0.237, 0.087, 0.032], atol=5e-4)
    cases = {
        SamplingParams(top_p=0.85): {0, 1},
        SamplingParams(min_p=0.2): {0, 1},
        SamplingParams(top_k=3, top_p=0.95): {0, 1, 2},
    }
    for params, want in cases.items():
        rows = [msgspec.structs.replace(params, seed=seed) for seed in range(400)]
        assert set(sampled(rows, logits, [])) == want


def test_top_p_sees_the_untempered_distribution() -> None:
    """At T = 100 all four are about equally likely; on that distribution 0.85 would keep them."""
    rows = [SamplingParams(temperature=100.0, top_p=0.85, seed=seed) for seed in range(400)]
    assert set(sampled(rows, np.array([2.0, 1.0, 0.0, -1.0]), [])) == {0, 1}


def test_what_is_left_without_the_likeliest_is_drawn_from_at_any_temperature() -> None:
    row = SamplingParams(temperature=0.001, xtc_probability=1.0, xtc_threshold=0.08)
    rows = [msgspec.structs.replace(row, seed=seed) for seed in range(50)]
    assert set(sampled(rows, np.array([2.0, 1.0, 0.0, -1.0]), [])) == {2}


def test_the_unlikeliest_is_drawn_at_a_high_enough_temperature() -> None:
    row = SamplingParams(temperature=1000.0, top_n_sigma=9.0)
    rows = [msgspec.structs.replace(row, seed=seed) for seed in range(50)]
    assert set(sampled(rows, np.array([0.0, -200.0]), [])) == {0, 1}


@pytest.mark.parametrize(
    ("params", "want"),
    [
        pytest.param(SamplingParams(top_k=2), {1, 3}, id="top-k"),
        pytest.param(SamplingParams(top_p=0.5), {1, 3}, id="top-p"),
        pytest.param(SamplingParams(top_k=100, top_p=0.5), {1, 3}, id="top-p-wide-head"),
    ],
)
@pytest.mark.parametrize("vocab", WIDTHS)
def test_ties_go_by_lower_id(params: SamplingParams, want: set[int], vocab: int) -> None:
    logits = np.full(vocab, -50.0)
    logits[[1, 3, 5, 7]] = 4.0
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(60)]
    assert set(sampled(rows, logits, [])) == want


def test_flat_logits_keep_exactly_the_share() -> None:
    rows = [SamplingParams(top_p=0.25, seed=seed) for seed in range(300)]
    tokens = sampled(rows, np.zeros(4096), [])
    assert max(tokens) < 1024 + 2
    assert max(tokens) > 900


def test_kinds_are_a_matter_of_the_row_alone() -> None:
    assert kind_of(SamplingParams(top_k=64)) is Kind.HEAD
    assert kind_of(SamplingParams(top_k=65)) is Kind.WIDE_HEAD
    assert kind_of(SamplingParams(top_k=1025)) is Kind.WHOLE
    assert kind_of(SamplingParams(top_p=0.9)) is Kind.WHOLE
    assert kind_of(SamplingParams(temperature=0.5)) is Kind.PLAIN
    assert kind_of(SamplingParams(temperature=0, top_p=0.9)) is Kind.GREEDY


@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0.01, 0.999),
    scale=st.floats(0.01, 8.0),
    levels=st.sampled_from([0, 3, 40]),
)
def test_halving_keeps_what_sorting_keeps(
    seed: int, share: float, scale: float, levels: int
) -> None:
    """Also where many keys tie (`levels`: how many different ones there are)."""
    draws = np.random.default_rng(seed)
    logits = draws.normal(scale=scale, size=SORTED + 32)
    if levels:
        logits = np.round(logits * levels / scale / 6) * scale * 6 / levels
    keys = (logits - logits.max()).astype(np.float32)
    mass = np.exp(keys)
    total = mass.sum(dtype=np.float64)
    least = np.log((1 - share) * total / len(keys))
    result = foremost(
        mx.array(keys)[None], mx.array(mass)[None], mx.array([[share * total]]),
        mx.array([[least]]),
    )  # fmt: skip
    order = np.argsort(-keys, kind="stable")
    count = int(np.searchsorted(np.cumsum(mass[order].astype(np.float64)), share * total)) + 1
    want, got = set(order[:count].tolist()), set(np.flatnonzero(np.array(result[0])).tolist())
    # Rounding may move the border by a token or two.
    assert len(want ^ got) <= 2
    border = keys[order[count - 1]]
    assert all(abs(keys[i] - border) < 1e-3 for i in want ^ got)


def test_dry_and_penalties_work_on_one_history() -> None:
    """Presence makes 0 less likely, DRY the 3 that would repeat 1 2 3."""
    said = [1, 2, 3, 0, 1, 2]
    logits = np.array([4.0, 0.0, 0.0, 5.0, 3.5, 0.0])
    rule = Dry(multiplier=3.0, base=1.75, allowed_length=2, window=64)
    row = SamplingParams(temperature=0, presence_penalty=1.0, dry=rule)
    assert sampled([row], logits, said) == [4]
