"""Draws in view of a proposal: taken as often as can be, and distributed as without."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.core.sampling import AdaptiveP, Mirostat, SamplingParams
from mlxcel.engine.draft.draws import OwnDraws, can_reject
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.rejection import NOTHING, Proposed, judged

P, Q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
VOCAB = 200
ROWS, STEPS = 500, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of so many draws."""

    guessed: np.ndarray
    said: np.ndarray
    """In view of what was guessed."""
    plain: np.ndarray
    """By the same row, without."""
    odds: np.ndarray
    """`[vocab]`, of the row, on average."""
    shared: float
    """sum(min(p, q)), on average."""


def outcome(
    target: mx.array, drafter: mx.array, params: SamplingParams, *, rows: int, steps: int
) -> Outcome:
    """Logits `[vocab]`, the same over and over: a row for each seed, a step for each position."""
    seeded = [params.seeded(seed) for seed in range(rows)]
    row = BatchSampler(seeded, target.shape[0])
    teller = BatchSampler(seeded, target.shape[0], proposes=True)
    guesser = BatchSampler(seeded, drafter.shape[0], proposes=True)
    p_logits, q_logits = (mx.broadcast_to(one, (rows, one.size)) for one in (target, drafter))
    rest = mx.zeros((rows, params.history_width), dtype=mx.int32), mx.zeros((rows, 2))
    tokens, odds, shared = [], [], []
    for step in range(steps):
        at = [step] * rows
        guess, own = guesser(q_logits, at, *rest), teller(p_logits, at, *rest)
        assert guess.odds is not None
        assert own.odds is not None
        proposed = Proposed(guess.tokens[:, None], guess.odds)
        said, plain = row(p_logits, at, *rest, proposed=proposed), row(p_logits, at, *rest)
        tokens.append(mx.stack([guess.tokens, said.tokens, plain.tokens]))
        odds.append(own.odds.mean(axis=0))
        shared.append(mx.minimum(own.odds[:, : drafter.size], guess.odds).sum() / rows)
    guessed, told, alone = np.array(mx.concatenate(tokens, axis=1))
    mean = np.array(mx.stack(odds).mean(axis=0))
    both = float(mx.stack(shared).mean())
    return Outcome(guessed=guessed, said=told, plain=alone, odds=mean, shared=both)


def test_the_table_of_the_contract() -> None:
    """d = 1 is taken with 0.6; where it is not, 0 is said."""
    numbers = mx.arange(1000)[:, None] / 1000
    own = mx.broadcast_to(mx.array(P), (1000, 3))
    odds = mx.broadcast_to(mx.array(Q), (1000, 3))
    is_taken, rest = judged(own * 7, Proposed(mx.ones((1000, 1), mx.int32), odds), numbers)
    assert float(is_taken.sum()) == pytest.approx(600, abs=1)
    assert mx.allclose(rest, mx.array([0.3, 0.0, 0.0]), atol=1e-6).item()


def test_both_rules_say_what_is_as_probable() -> None:
    """200,000 rounds; a proposal comes true in sum(min(p, q)) of them, and were it only kept
    where it is what the row draws, independently of it, in sum(p * q)."""
    one = outcome(mx.log(mx.array(P)), mx.log(mx.array(Q)), SamplingParams(), rows=2000, steps=100)
    assert one.odds == pytest.approx(P, abs=1e-5)
    assert np.bincount(one.guessed) / 200_000 == pytest.approx(Q, abs=0.005)
    assert np.bincount(one.said) / 200_000 == pytest.approx(P, abs=0.005)
    assert np.bincount(one.plain) / 200_000 == pytest.approx(P, abs=0.005)
    assert (one.said == one.guessed).mean() == pytest.approx(0.7, abs=0.005)
    assert (one.plain == one.guessed).mean() == pytest.approx(0.31, abs=0.005)
    refused = one.said[(one.said != one.guessed) & (one.guessed == 1)]
    assert len(refused) > 30_000
    assert not refused.any()


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(SamplingParams(), id="plain"),
        pytest.param(SamplingParams(temperature=0.6), id="cold"),
        pytest.param(SamplingParams(top_p=0.8), id="nucleus"),
        pytest.param(SamplingParams(top_k=20, min_p=0.05), id="head"),
        pytest.param(SamplingParams(top_k=150, top_p=0.95), id="wide-head"),
        pytest.param(SamplingParams(xtc_probability=0.5, xtc_threshold=0.02), id="xtc"),
        pytest.param(SamplingParams(presence_penalty=1.5), id="penalised"),
        pytest.param(SamplingParams(bias=((3, 2.0), (5, -np.inf))), id="bias"),
    ],
)
def test_every_chain_keeps_its_distribution(params: SamplingParams) -> None:
    """A drafter with other odds, that knows a token less."""
    mx.random.seed(3)
    target = 2 * mx.random.normal((VOCAB,))
    drafter = (target + mx.random.normal((VOCAB,)))[:-1]
    one = outcome(target, drafter, params, rows=ROWS, steps=STEPS)
    draws = ROWS * STEPS
    counts, wanted = np.bincount(one.said, minlength=VOCAB), one.odds * draws
    assert not counts[wanted == 0].any()
    is_rare = wanted < 5
    told = np.append(counts[~is_rare], counts[is_rare].sum())
    hoped = np.append(wanted[~is_rare], wanted[is_rare].sum())
    told, hoped = told[hoped > 0], hoped[hoped > 0]
    chi_square, freedom = ((told - hoped) ** 2 / hoped).sum(), len(hoped) - 1
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)
    taken = (one.said == one.guessed).mean()
    assert taken == pytest.approx(one.shared, abs=4 * 0.5 / np.sqrt(draws))
    assert taken > (one.plain == one.guessed).mean()


def test_rows_without_a_proposal_draw_as_ever() -> None:
    """Beside one that has, in the same group and in others."""
    mx.random.seed(4)
    params = [
        SamplingParams(seed=1),
        SamplingParams(seed=2),
        SamplingParams(seed=3, top_k=20),
        SamplingParams(seed=4, top_p=0.9),
        SamplingParams(seed=5, temperature=0.0),
        SamplingParams(seed=6, mirostat=Mirostat(version=2, rate=0.1, target=5.0)),
    ]
    logits = mx.random.normal((len(params), VOCAB))
    sampler = BatchSampler(params, VOCAB)
    rest = mx.zeros((len(params), 0), dtype=mx.int32), mx.full((len(params), 2), 10.0)
    odds = mx.zeros((len(params), VOCAB))
    odds[0, 7] = odds[2, 7] = 1.0
    tokens = mx.array([7, NOTHING, 7, NOTHING, NOTHING, NOTHING], dtype=mx.int32)[:, None]
    for step in range(50):
        at = [step] * len(params)
        plain = sampler(logits, at, *rest)
        said = sampler(logits, at, *rest, proposed=Proposed(tokens, odds))
        alike = [place for place in range(len(params)) if place not in (0, 2)]
        assert said.tokens[mx.array(alike)].tolist() == plain.tokens[mx.array(alike)].tolist()
        assert mx.array_equal(said.state, plain.state)


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2.0**-24])
def test_borders(number: float) -> None:
    own = mx.array([[0.25, 0.25, 0.5, 0.0]] * 4)
    odds = mx.array([[0.25, 0.25, 0.5, 0.0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 1, 0]])
    tokens = mx.array([[2], [3], [2], [NOTHING]], dtype=mx.int32)
    is_taken, rest = judged(own, Proposed(tokens, odds), mx.full((4, 1), number))
    # p = q: always, and something is there to be said if it were not; p(d) = 0: never.
    assert is_taken[:, 0].tolist() == [True, False, number <= 0.5, False]
    assert rest[0].tolist() == own[0].tolist()
    assert rest[1].tolist() == own[1].tolist()


def test_nothing_can_be_drawn_in_view_of_anything() -> None:
    logits = mx.array([[mx.nan] * 40, [-mx.inf] * 40])
    proposed = Proposed(mx.array([[1], [1]], dtype=mx.int32), mx.full((2, 40), 1 / 40))
    for params in (SamplingParams(), SamplingParams(top_k=5), SamplingParams(top_p=0.5)):
        drawn = BatchSampler([params] * 2, 40)(
            logits, [0, 0], mx.zeros((2, 0), mx.int32), mx.zeros((2, 2)), proposed=proposed
        )
        assert drawn.tokens.tolist() == [-1, -1]


@pytest.mark.parametrize("is_post", [False, True])
@pytest.mark.parametrize("top_k", [0, 10])
def test_scores_are_those_of_what_is_said(is_post: bool, top_k: int) -> None:
    mx.random.seed(5)
    params = SamplingParams(top_k=top_k)
    logits = mx.random.normal((1, VOCAB))
    sampler = BatchSampler([params], VOCAB, top_logprobs=[VOCAB], post_sampling=[is_post])
    for token in range(0, VOCAB, 20):
        odds = mx.zeros((1, VOCAB))
        odds[0, token] = 1.0
        proposed = Proposed(mx.array([[token]], dtype=mx.int32), odds)
        drawn = sampler(
            logits, [token], mx.zeros((1, 0), mx.int32), mx.zeros((1, 2)), proposed=proposed
        )
        (scores,) = drawn.scores
        said = drawn.tokens.item()
        (places,) = np.nonzero(np.array(scores.ids[0]) == said)
        assert scores.said[0].item() == pytest.approx(scores.values[0, int(places[0])].item())


def test_a_drafter_draws_alike_or_tells_its_odds() -> None:
    logits = mx.random.normal((64, VOCAB), key=mx.random.key(1))
    params = SamplingParams(seed=9, top_k=30)
    alike, apart = OwnDraws(params, VOCAB), OwnDraws(params, VOCAB, keeps_odds=True)
    row = BatchSampler([params] * 64, VOCAB)
    own = row(logits, range(3, 67), mx.zeros((64, 0), mx.int32), mx.zeros((64, 2))).tokens
    assert mx.array_equal(alike(logits, 3), own)
    assert alike.odds is None
    apart(logits[:2], 1)
    apart.begin()
    drawn = apart(logits, 3)
    assert apart.odds is not None
    assert apart.odds.shape == (64, VOCAB)
    assert mx.allclose(apart.odds.sum(axis=1), mx.ones(64), atol=1e-5).item()
    assert ((apart.odds > 0).sum(axis=1) == 30).all().item()
    assert (mx.take_along_axis(apart.odds, drawn[:, None], axis=1) > 0).all().item()
    assert int(mx.sum(drawn == own)) < 32


@pytest.mark.parametrize(
    ("params", "can"),
    [
        pytest.param(SamplingParams(), True, id="draws"),
        pytest.param(SamplingParams(frequency_penalty=1.0), True, id="penalised"),
        pytest.param(SamplingParams(temperature=0.0), False, id="greedy"),
        pytest.param(SamplingParams(top_k=1), False, id="one"),
        pytest.param(
            SamplingParams(mirostat=Mirostat(version=2, rate=0.1, target=5.0)), False, id="mirostat"
        ),
        pytest.param(
            SamplingParams(adaptive=AdaptiveP(target=0.5, decay=0.9)), False, id="adaptive"
        ),
    ],
)
def test_for_whom(params: SamplingParams, can: bool) -> None:
    assert can_reject(params) is can
    own = OwnDraws(params, 40, keeps_odds=True)
    own(mx.zeros((1, 40)), 0)
    assert (own.odds is not None) is can
