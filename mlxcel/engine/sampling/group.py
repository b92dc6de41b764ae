"""Rows of one kind, sampled over the same width.

The arithmetic of a row never depends on its neighbours: rows with a top-k of some hundreds at
most work on a head of fixed width, other truncated rows on the whole vocabulary, untruncated
rows on it without any weighing of what is kept.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Self

import mlx.core as mx
import numpy as np

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling.adaptive import Steering, is_adaptive
from mlxcel.engine.sampling.candidates import LOWEST, Candidates, candidates
from mlxcel.engine.sampling.draws import REST_SALT, TEST_SALT, XTC_SALT, uniforms
from mlxcel.engine.sampling.head import likeliest
from mlxcel.engine.sampling.mirostat import Bound, is_mirostat
from mlxcel.engine.sampling.rejection import Proposed, judged
from mlxcel.engine.sampling.rowwise import (
    LANES,
    at,
    exponential,
    fused,
    on_gpu,
    padded,
    peak,
    total,
)
from mlxcel.engine.sampling.scores import DrawnScorer, Scores
from mlxcel.engine.sampling.temper import Temperature
from mlxcel.engine.sampling.truncate import Spread, Truncation, is_truncated


class Kind(Enum):
    """How a row is sampled: a property of its own parameters alone."""

    GREEDY = 0
    HEAD = 1
    WIDE_HEAD = 2
    WHOLE = 3
    PLAIN = 4
    MIROSTAT = 5


HEADS = {Kind.HEAD: 64, Kind.WIDE_HEAD: 1024}
"""Rows with 0 < top_k <= the width are sampled from that many likeliest tokens."""


def kind_of(row: SamplingParams) -> Kind:
    if row.is_greedy:
        return Kind.GREEDY
    if is_mirostat(row):
        return Kind.MIROSTAT
    for kind, width in HEADS.items():
        if 0 < row.top_k <= width:
            return kind
    is_moving = row.dynamic_temperature is not None or is_adaptive(row)
    return Kind.WHOLE if is_truncated(row) or is_moving else Kind.PLAIN


NONE = -1
"""The token of a row that has nothing to draw."""


class Step(NamedTuple):
    """What one step hands to the groups, all of the whole batch."""

    logits: mx.array
    """After steps 1 to 5: `[rows, vocab]`, of whatever type they have come in or were made."""
    seeds: np.ndarray
    positions: np.ndarray
    state: mx.array
    salt: np.uint64
    """Of the draws; 0: they are the rows' own."""
    proposed: Proposed | None
    """In view of which they are drawn."""

    @property
    def draw(self) -> mx.array:
        """A number in [0, 1) for each row: float32 `[rows, 1]`."""
        return self.number(self.salt)

    @property
    def chance(self) -> mx.array:
        """A second one, independent of the draw."""
        return self.number(XTC_SALT)

    def number(self, salt: np.uint64) -> mx.array:
        return mx.array(uniforms(self.seeds ^ salt, self.positions).astype(np.float32)[:, None])

    def of(self, places: np.ndarray, rows: mx.array) -> Self:
        """Of the rows in these places alone, given twice."""
        return self._replace(
            logits=self.logits[rows],
            seeds=self.seeds[places],
            positions=self.positions[places],
            state=self.state[rows],
            proposed=None if self.proposed is None else self.proposed.of(rows),
        )


class Choice(NamedTuple):
    """What a group of n rows has drawn, and out of what."""

    tokens: mx.array
    """int32 `[n, 1]`, -1 where nothing can be drawn."""
    state: mx.array
    """The next state: `[n, 2]`."""
    odds: mx.array | None
    """Weights of what could be drawn, `[n, width]`, 0 for what is gone; None: no other token."""
    places: mx.array
    """`[n, 1]`, of the tokens in it."""
    ids: mx.array | None
    """Of the weights; None: the place is the id."""


class Part(NamedTuple):
    """What a group has to say of its n rows."""

    tokens: mx.array
    """int32 `[n]`, -1 where nothing can be drawn."""
    state: mx.array
    """The next state: `[n, 2]`."""
    told: Scores | None
    """What those that asked were drawn from."""
    odds: mx.array | None
    """float32 `[n, vocab]`: how probable each token was, where that is kept; None: no other was
    possible."""


class Group:
    """The rows in `places` of the batch, all of one kind. `asked` is how many of the likeliest
    tokens each row of the batch wants told of what it was drawn from, None: nothing;
    `keeps_odds`: all of that is to be known."""

    def __init__(
        self,
        kind: Kind,
        rows: Sequence[SamplingParams],
        places: list[int],
        vocab: int,
        asked: Sequence[int | None],
        *,
        keeps_odds: bool,
    ) -> None:
        chosen = [rows[i] for i in places]
        told = {i: most for i in places if (most := asked[i]) is not None}
        self._scorer = DrawnScorer(told, [places.index(i) for i in told], vocab) if told else None
        self._keeps_odds = keeps_odds
        self._vocab = vocab
        self._kind = kind
        self._places = None if len(places) == len(rows) else np.array(places)
        self._rows = None if self._places is None else mx.array(self._places)
        self._width = min(HEADS.get(kind, vocab), vocab + -vocab % LANES)
        self._temperature = Temperature(chosen)
        has_spread = kind is not Kind.MIROSTAT and any(row.top_n_sigma > 0 for row in chosen)
        self._spread = Spread(chosen) if has_spread else None
        self._least = _top_k(chosen, self._width) if kind in HEADS else mx.array([[LOWEST]])
        self._truncation = Truncation(chosen, is_head=kind in HEADS)
        self._steering = Steering(chosen) if any(map(is_adaptive, chosen)) else None
        self._bound = Bound(chosen, vocab) if kind is Kind.MIROSTAT else None

    @property
    def has_state(self) -> bool:
        """Whether a draw changes what is remembered of a row."""
        return self._bound is not None or self._steering is not None

    def __call__(self, step: Step) -> Part:
        """What the group's rows have drawn."""
        if self._rows is not None and self._places is not None:
            step = step.of(self._places, self._rows)
        choice = self._chosen(step)
        if step.proposed is not None and choice.odds is not None:
            choice = _in_view(choice, choice.odds, step)
        told = None if self._scorer is None else self._scorer(choice)
        odds = self._odds(choice) if self._keeps_odds else None
        return Part(choice.tokens[:, 0], choice.state, told, odds)

    def _odds(self, choice: Choice) -> mx.array | None:
        if choice.odds is None:
            return None
        odds = choice.odds / total(choice.odds)
        if choice.ids is None:
            return odds[:, : self._vocab]
        whole = mx.zeros((odds.shape[0], self._vocab + -self._vocab % LANES))
        return mx.put_along_axis(whole, choice.ids, odds, axis=-1)[:, : self._vocab]

    def _chosen(self, step: Step) -> Choice:
        if self._kind is Kind.GREEDY:
            tokens = most_likely(step.logits)
            return Choice(tokens, step.state, None, tokens, None)
        if self._kind is Kind.PLAIN:
            odds = self._plain(step.logits)
            places, whole = inverted(odds, step.draw)
            return Choice(sound(places, whole), step.state, odds, places, None)
        some = self._candidates(step.logits)
        if self._bound is not None:
            return self._bounded(self._bound, some, step)
        chance = step.chance if self._truncation.needs_chance else None
        return self._drawn(self._truncation(some, chance), step)

    def _plain(self, logits: mx.array) -> mx.array:
        logits = padded(logits, -mx.inf)
        return _weighed(logits, peak(logits), self._temperature.middle)

    def _candidates(self, logits: mx.array) -> Candidates:
        logits = padded(logits, -mx.inf)
        if self._kind not in HEADS:
            top = peak(logits)
            return candidates(logits, top, self._bounds(logits, top), None)
        ids, head = likeliest(logits, self._width)
        top = head[:, :1]
        return candidates(head, top, self._bounds(logits, top), ids)

    def _bounds(self, logits: mx.array, top: mx.array) -> mx.array:
        """How far below the largest logit one may be."""
        if self._spread is None:
            return self._least
        spread = self._spread(logits.astype(mx.float32), top.astype(mx.float32))
        return mx.maximum(self._least, spread)

    def _drawn(self, some: Candidates, step: Step) -> Choice:
        odds = weights = self._tempered(some)
        if self._steering is not None:
            odds = self._steering.weighed(weights, step.state)
        places, whole = inverted(odds, step.draw)
        state = step.state
        if self._steering is not None:
            after = self._steering.after(weights, places, state)
            state = mx.where(whole > 0, after, state)
        return Choice(sound(some.tokens(places), whole), state, odds, places, some.ids)

    def _tempered(self, some: Candidates) -> mx.array:
        # The weights are those of temperature 1 but for the least there may be, which is lost in
        # every sum that begins with a 1.
        begins_with_1 = some.ids is not None and self._truncation.keeps_top
        if begins_with_1 and self._temperature.is_neutral and self._steering is None:
            return some.weights
        return self._temperature(some, has_top=self._truncation.keeps_top)

    def _bounded(self, bound: Bound, some: Candidates, step: Step) -> Choice:
        logits = padded(step.logits, -mx.inf).astype(mx.float32)
        scores = (logits - peak(logits)) / self._temperature.of(some)
        weights = exponential(scores)
        odds = bound.kept(scores, weights, step.state)
        places, whole = inverted(odds, step.draw)
        state = mx.where(whole > 0, bound.after(weights, places, step.state), step.state)
        return Choice(sound(places, whole), state, odds, places, None)


def _in_view(choice: Choice, odds: mx.array, step: Step) -> Choice:
    """Drawn anew, in the rows to which something was proposed."""
    assert step.proposed is not None
    proposed = step.proposed.among(choice.ids, odds.shape[-1])
    is_taken, rest = judged(odds, proposed, step.number(TEST_SALT))
    other, _ = inverted(rest, step.number(REST_SALT))
    places = mx.where(is_taken, proposed.tokens, other.astype(mx.int32))
    is_asked = (step.proposed.tokens >= 0) & (choice.tokens >= 0)
    places = mx.where(is_asked, places, choice.places.astype(mx.int32))
    tokens = places if choice.ids is None else at(choice.ids, places).astype(mx.int32)
    return choice._replace(tokens=mx.where(is_asked, tokens, choice.tokens), places=places)


def most_likely(logits: mx.array) -> mx.array:
    """`[rows, 1]`, -1 where its logit is no finite number. (On a GPU `argmax` passes over a NaN as
    long as there is a number; on a CPU it is slow with 16 bits.)"""
    if not on_gpu():
        logits = logits.astype(mx.float32)
    places = mx.argmax(logits, axis=-1, keepdims=True)
    return _finite(places, at(logits, places))


def inverted(weights: mx.array, draw: mx.array) -> tuple[mx.array, mx.array]:
    """Where the cumulative weight passes the draw, which is less than 1, and all the weight: 0 or
    NaN, where there is nothing to draw. Both `[rows, 1]`. Never a place without weight. Weights
    are from 0 to 1."""
    mass = mx.cumsum(weights, axis=-1)
    whole = mass[:, -1:]
    if on_gpu():
        marked = _marked(weights, mass, whole, draw)
        return mx.argmax(marked, axis=-1, keepdims=True), whole
    # Sums made one after the other never fall: the place after those that have not passed.
    passed = mx.sum(mass <= draw * whole, axis=-1, keepdims=True)
    return mx.minimum(passed, weights.shape[-1] - 1).astype(mx.uint32), whole


@fused
def sound(tokens: mx.array, whole: mx.array) -> mx.array:
    """int32, -1 where nothing weighs anything."""
    return mx.where(whole > 0, tokens.astype(mx.int32), NONE)


@fused
def _finite(tokens: mx.array, logits: mx.array) -> mx.array:
    return mx.where(mx.abs(logits) < mx.inf, tokens.astype(mx.int32), NONE)


@fused
def _weighed(logits: mx.array, top: mx.array, temperature: mx.array) -> mx.array:
    differences = logits.astype(mx.float32) - top.astype(mx.float32)
    return exponential(differences / temperature)


@fused
def _marked(weights: mx.array, mass: mx.array, whole: mx.array, draw: mx.array) -> mx.array:
    """The weights, but 2 where the draw is passed: the first of these is the largest. (A GPU adds
    in trees, so sums may rise where there is no weight; where none passes it is the heaviest.)"""
    is_passed = (mass > draw * whole) & (weights > 0)
    return mx.where(is_passed, 2.0, weights)


def _top_k(rows: Sequence[SamplingParams], width: int) -> mx.array:
    """What `candidates` may keep of a head, likeliest first: `[rows, width]`."""
    counts = np.array([[row.top_k] for row in rows])
    kept = np.where(np.arange(width)[None] < counts, LOWEST, np.inf)
    return mx.array(kept.astype(np.float32))
