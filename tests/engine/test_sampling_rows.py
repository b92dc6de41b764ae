"""Rows side by side: none depends on its neighbours, and what is asked of one is done to it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from mlxcel.core.sampling import AdaptiveP, Dry, DynamicTemperature, Mirostat, SamplingParams
from mlxcel.engine.sampling.batch import BatchSampler, Drawn
from mlxcel.engine.sampling.head import likeliest
from mlxcel.engine.sampling.history import History
from mlxcel.engine.sampling.state import initial_state
from mlxcel.link.messages import pack_bias

import mlx.core as mx  # isort: skip

EVERYTHING = SamplingParams(
    temperature=0.9, top_p=0.98, min_p=0.001, typical_p=0.97, top_n_sigma=3.0, xtc_probability=0.5,
    xtc_threshold=0.02, xtc_spared=(5,), repetition_penalty=1.1, frequency_penalty=0.1,
    presence_penalty=0.1, bias=((3, 1.0),),
    dry=Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64, breakers=(7,)),
    dynamic_temperature=DynamicTemperature(span=0.2, exponent=1.0),
)  # fmt: skip
KINDS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=1.2),
    SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    SamplingParams(top_k=300, typical_p=0.9),
    SamplingParams(top_k=1500),
    SamplingParams(top_p=0.9),
    SamplingParams(min_p=0.03),
    SamplingParams(typical_p=0.7),
    SamplingParams(top_n_sigma=1.5),
    SamplingParams(xtc_probability=0.6, xtc_threshold=0.01),
    EVERYTHING,
    msgspec.structs.replace(EVERYTHING, top_k=40),
    SamplingParams(mirostat=Mirostat(version=1, rate=0.1, target=4.0)),
    SamplingParams(mirostat=Mirostat(version=2, rate=0.1, target=3.0)),
    SamplingParams(adaptive=AdaptiveP(target=0.4, decay=0.9), min_p=0.01),
    SamplingParams(adaptive=AdaptiveP(target=0.2, decay=0.5), top_k=50),
]


def draw(
    rows: list[SamplingParams],
    logits: np.ndarray,
    *,
    positions: list[int] | None = None,
    said: list[list[int]] | None = None,
    top_logprobs: Sequence[int | None] = (),
    post_sampling: Sequence[bool] = (),
    **more: mx.array,
) -> Drawn:
    history = History()
    for row, tokens in zip(rows, said or [[]] * len(rows), strict=True):
        history.join(tokens, row.history_width)
    sampler = BatchSampler(
        rows, logits.shape[-1], top_logprobs=top_logprobs, post_sampling=post_sampling
    )
    state = mx.array([initial_state(row) for row in rows])
    places = positions or [0] * len(rows)
    return sampler(mx.array(logits), places, history.tokens, state, **more)


@pytest.mark.parametrize("vocab", [300, 4096, 5003])
def test_a_row_alone_is_itself_among_sixteen(vocab: int) -> None:
    random = np.random.default_rng(vocab)
    logits = random.normal(scale=2.5, size=(16, vocab)).astype(np.float32)
    said = random.integers(0, 20, size=(16, 80)).tolist()
    for turn in range(4):
        rows = [msgspec.structs.replace(k, seed=100 * turn + i) for i, k in enumerate(KINDS)]
        positions = [int(p) for p in random.integers(0, 500, size=16)]
        together = draw(rows, logits, positions=positions, said=said)
        states = np.array(together.state)
        for i, row in enumerate(rows):
            alone = draw([row], logits[i : i + 1], positions=[positions[i]], said=[said[i]])
            assert alone.tokens.tolist() == [together.tokens[i].item()], row
            np.testing.assert_array_equal(np.array(alone.state)[0], states[i])


@pytest.mark.parametrize("scale", [2.5, 20.0])
def test_a_row_is_itself_among_rows_of_its_kind(scale: float) -> None:
    """Steps that only a neighbour has run over the whole group."""
    logits = np.random.default_rng(2).normal(scale=scale, size=(7, 4000)).astype(np.float32)
    neutral = [
        SamplingParams(temperature=100.0, top_n_sigma=9.0),
        SamplingParams(top_p=0.9), SamplingParams(min_p=0.02), SamplingParams(top_n_sigma=2.0),
        SamplingParams(dynamic_temperature=DynamicTemperature(span=0.5, exponent=1.0)),
        EVERYTHING, SamplingParams(adaptive=AdaptiveP(target=0.4, decay=0.9)),
    ]  # fmt: skip
    for seed in range(4):
        rows = [msgspec.structs.replace(row, seed=seed) for row in neutral]
        together = draw(rows, logits).tokens.tolist()
        alone = [draw([row], logits[i : i + 1]).tokens.item() for i, row in enumerate(rows)]
        assert alone == together


@pytest.mark.parametrize("params", KINDS, ids=lambda row: str(KINDS.index(row)))
@pytest.mark.parametrize("broken", [-np.inf, np.nan, np.inf], ids=["banned", "nan", "inf"])
def test_a_row_with_nothing_to_draw_says_so_alone(params: SamplingParams, broken: float) -> None:
    logits = np.random.default_rng(0).normal(size=(3, 4100)).astype(np.float32)
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(3)]
    want = draw(rows, logits)
    logits[1] = broken
    got = draw(rows, logits)
    assert got.tokens.tolist() == [want.tokens[0].item(), -1, want.tokens[2].item()]
    assert got.state[1].tolist() == pytest.approx(initial_state(params))
    np.testing.assert_array_equal(np.array(got.state)[[0, 2]], np.array(want.state)[[0, 2]])


def test_one_nan_among_numbers_is_enough() -> None:
    logits = np.zeros((2, 100), dtype=np.float32)
    logits[0, 57] = np.nan
    rows = [SamplingParams(temperature=0), SamplingParams(temperature=0)]
    assert draw(rows, logits).tokens.tolist() == [-1, 0]


@pytest.mark.parametrize("params", KINDS, ids=lambda row: str(KINDS.index(row)))
def test_only_allowed_tokens_are_drawn(params: SamplingParams) -> None:
    vocab, passed = 4100, [17, 2500, 4099]
    logits = np.random.default_rng(1).normal(scale=3.0, size=(40, vocab)).astype(np.float32)
    allowed = np.zeros((40, vocab), dtype=bool)
    allowed[:, passed] = True
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(40)]
    tokens = draw(rows, logits, allowed=mx.array(allowed)).tokens.tolist()
    assert set(tokens) <= set(passed)
    if params.is_greedy:
        assert tokens == [max(passed, key=lambda i: row[i]) for row in logits]


def test_one_allowed_token_is_drawn_whatever_its_logit() -> None:
    logits = np.zeros((len(KINDS), 300), dtype=np.float32)
    logits[:, 9] = -200.0
    allowed = np.zeros((len(KINDS), 300), dtype=bool)
    allowed[:, 9] = True
    assert draw(KINDS, logits, allowed=mx.array(allowed)).tokens.tolist() == [9] * len(KINDS)


def test_nothing_allowed_is_nothing_drawn() -> None:
    allowed = mx.array([[False] * 50, [True] * 50])
    rows = [SamplingParams(), SamplingParams(temperature=0)]
    assert draw(rows, np.zeros((2, 50), dtype=np.float32), allowed=allowed).tokens.tolist() == [
        -1,
        0,
    ]


def test_a_forced_token_is_said_and_leaves_the_state_alone() -> None:
    logits = np.random.default_rng(3).normal(size=(16, 400)).astype(np.float32)
    free = draw(KINDS, logits)
    forced = [i if i % 2 else -1 for i in range(16)]
    got = draw(KINDS, logits, forced=mx.array(forced))
    for i, kind in enumerate(KINDS):
        if i % 2:
            assert got.tokens[i].item() == i
            assert got.state[i].tolist() == pytest.approx(initial_state(kind))
        else:
            assert got.tokens[i].item() == free.tokens[i].item()
            assert got.state[i].tolist() == free.state[i].tolist()
    assert free.state[13].tolist() != pytest.approx(initial_state(KINDS[13]))


def test_greedy_ties_go_to_the_lower_id() -> None:
    logits = np.zeros((1, 5000), dtype=np.float32)
    logits[0, [4000, 123, 2222]] = 1.0
    assert draw([SamplingParams(temperature=0)], logits).tokens.tolist() == [123]


def test_wide_bias_is_added() -> None:
    pairs = [(i, -np.inf) for i in range(0, 3000, 2)] + [(7, 5.0), (7, 5.0)]
    row = SamplingParams(wide_bias=pack_bias(pairs), bias=((9, 9.5),))
    logits = np.zeros((300, 3000), dtype=np.float32)
    rows = [msgspec.structs.replace(row, seed=seed) for seed in range(300)]
    tokens = draw(rows, logits).tokens.tolist()
    assert all(token % 2 for token in tokens)
    # e**10 and e**9.5 beside 1498 tokens of weight 1
    assert tokens.count(7) / 300 == pytest.approx(0.592, abs=0.1)
    assert tokens.count(9) / 300 == pytest.approx(0.359, abs=0.1)


def test_an_infinite_bias_wins_over_every_logit_but_not_over_a_ban() -> None:
    row = SamplingParams(bias=((3, np.inf), (4, np.inf), (4, -np.inf)))
    logits = np.random.default_rng(0).normal(scale=10.0, size=(20, 50)).astype(np.float32)
    rows = [msgspec.structs.replace(row, seed=seed) for seed in range(20)]
    assert set(draw(rows, logits).tokens.tolist()) == {3}


def log_softmax(values: np.ndarray) -> np.ndarray:
    shifted = values.astype(np.float64) - values.max()
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum())
    return result


def test_scores_are_those_of_numpy() -> None:
    """After bias, penalties and DRY; before mask, truncation and temperature."""
    vocab = 3000
    logits = np.random.default_rng(6).normal(scale=2.0, size=(4, vocab)).astype(np.float32)
    rows = [
        SamplingParams(temperature=0.2, top_k=5, seed=1),
        SamplingParams(temperature=0),
        SamplingParams(presence_penalty=2.0, bias=((8, 4.0),), top_p=0.5, seed=2),
        SamplingParams(),
    ]
    allowed = np.ones((4, vocab), dtype=bool)
    allowed[1, logits[1].argmax()] = False
    said = [[], [], [8, 8, 40], []]
    drawn = draw(rows, logits, said=said, allowed=mx.array(allowed), top_logprobs=[3, 0, 5, None])
    (scores,) = drawn.scores
    assert scores.places == [0, 1, 2]
    assert scores.ids.shape == scores.values.shape == (3, 5)
    logits[2, 8] += 4.0 - 2.0
    logits[2, 40] -= 2.0
    for i in range(3):
        want = log_softmax(logits[i])
        best = np.argsort(-want, kind="stable")[:5]
        assert scores.ids[i].tolist() == best.tolist()
        np.testing.assert_allclose(np.array(scores.values[i]), want[best], atol=1e-5)
        assert scores.said[i].item() == pytest.approx(want[drawn.tokens[i].item()], abs=1e-5)


def test_scores_of_a_forced_token_and_of_no_token() -> None:
    logits = np.array([[2.0, 1.0, 0.0, -1.0]] * 2, dtype=np.float32)
    rows = [SamplingParams(temperature=0)] * 2
    drawn = draw(rows, logits, forced=mx.array([2, -1]), top_logprobs=[20, 1])
    (scores,) = drawn.scores
    np.testing.assert_allclose(np.array(scores.said), [-2.44, -0.44], atol=1e-3)
    assert scores.ids.tolist() == [[0, 1, 2, 3]] * 2
    assert draw(rows, logits).scores == ()
    (none,) = draw(rows, logits, top_logprobs=[None, 0]).scores
    assert none.ids.shape == (1, 0)


def test_scores_are_the_same_beside_others() -> None:
    logits = np.random.default_rng(8).normal(size=(3, 4096)).astype(np.float32)
    rows = [SamplingParams(temperature=0)] * 3
    (together,) = draw(rows, logits, top_logprobs=[4, None, 4]).scores
    (alone,) = draw(rows[:1], logits[2:], top_logprobs=[4]).scores
    assert together.said[1].item() == alone.said[0].item()
    assert together.values[1].tolist() == alone.values[0].tolist()


def odds(
    row: SamplingParams, logits: np.ndarray, most: int, **options: Any
) -> tuple[int, float, dict[int, float]]:
    """The token drawn, and probabilities: its own, and of the likeliest that could be drawn."""
    drawn = draw([row], logits, top_logprobs=[most], post_sampling=[True], **options)
    (scores,) = drawn.scores
    pairs = zip(scores.ids[0].tolist(), mx.exp(scores.values[0]).tolist(), strict=True)
    told = {token: p for token, p in pairs if p > 0}
    return int(drawn.tokens.item()), float(mx.exp(scores.said).item()), told


def test_a_greedy_row_had_one_candidate() -> None:
    logits = np.array([[2.0, 1.0, 0.0, -1.0]], dtype=np.float32)
    assert odds(SamplingParams(temperature=0), logits, 3) == (0, 1.0, {0: 1.0})


def test_a_mask_has_its_part_in_the_odds() -> None:
    logits = np.array([[2.0, 1.0, 0.0, -1.0]], dtype=np.float32)
    allowed = mx.array([[False, True, False, True]])
    token, said, told = odds(SamplingParams(), logits, 4, allowed=allowed)
    assert told == pytest.approx({1: 0.881, 3: 0.119}, abs=1e-3)
    assert said == told[token]


@pytest.mark.parametrize("row", [SamplingParams(), SamplingParams(temperature=0)], ids=str)
@pytest.mark.parametrize("most", [0, 3])
def test_nothing_could_come_but_a_forced_token(row: SamplingParams, most: int) -> None:
    logits = np.array([[2.0, 1.0, 0.0, -1.0]], dtype=np.float32)
    want = {2: 1.0} if most else {}
    assert odds(row, logits, most, forced=mx.array([2])) == (2, 1.0, want)


def test_the_cut_of_mirostat_has_its_part_in_the_odds() -> None:
    """-log2 p <= 2 keeps the first two of four."""
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], dtype=np.float32))
    row = SamplingParams(mirostat=Mirostat(version=2, rate=0.1, target=1.0))
    token, said, told = odds(row, logits, 4)
    assert told == pytest.approx({0: 4 / 7, 1: 3 / 7}, abs=1e-4)
    assert said == told[token]


def test_adaptive_p_weighs_the_odds_anew() -> None:
    p = np.array([0.45, 0.28, 0.17, 0.1])
    logits = np.log(p)[None].astype(np.float32)
    row = SamplingParams(adaptive=AdaptiveP(target=0.2, decay=0.5))
    token, said, told = odds(row, logits, 4)
    distance = np.abs(p - 0.2) / 0.3
    weights = np.exp(-10 * distance**2 / (1 + distance))
    want = weights / weights.sum()
    assert list(told) == [2, 1, 3, 0]
    assert [told[i] for i in range(4)] == pytest.approx(want.tolist(), abs=1e-4)
    assert said == told[token]


@pytest.mark.parametrize("width", [1, 20, 64, 1024])
@pytest.mark.parametrize("vocab", [64, 2048, 49152])
def test_the_head_is_that_of_a_full_sort(vocab: int, width: int) -> None:
    """With many ties: what is inside is in order, and ties go by id."""
    random = np.random.default_rng(vocab + width)
    for logits in (
        random.normal(size=(2, vocab)).astype(np.float32),
        random.integers(0, vocab // 8, size=(2, vocab)).astype(np.float32),
    ):
        head = likeliest(mx.array(logits), width)
        ids = np.array(head.ids)
        values = np.take_along_axis(logits, ids, axis=-1)
        np.testing.assert_array_equal(np.array(head.logits), values)
        np.testing.assert_array_equal(values, -np.sort(-logits, axis=-1)[:, :width])
        falls = np.diff(values, axis=-1) < 0
        assert (falls | (np.diff(ids, axis=-1) > 0)).all()
