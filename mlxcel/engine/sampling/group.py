"""Rows of one kind, sampled over the same width.

The arithmetic of a row never depends on its neighbours: rows with a top-k of some hundreds at
most work on a head of fixed width, other truncated rows on the whole vocabulary, untruncated
rows on it without any weighing of what is kept.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling.adaptive import Steering, is_adaptive
from mlxcel.engine.sampling.candidates import Candidates, candidates
from mlxcel.engine.sampling.draws import XTC_SALT, uniforms
from mlxcel.engine.sampling.head import likeliest
from mlxcel.engine.sampling.mirostat import Bound, is_mirostat
from mlxcel.engine.sampling.rowwise import at, exponential
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


class Step(NamedTuple):
    """What one step hands to the groups, all of the whole batch."""

    logits: mx.array
    """After steps 1 to 5: `[rows, width]`, padded to whole lanes."""
    top: mx.array
    """The largest of each row: `[rows, 1]`."""
    seeds: np.ndarray
    positions: np.ndarray
    state: mx.array

    def of(self, places: list[int]) -> "Step":
        if len(places) == len(self.seeds):
            return self
        rows = mx.array(places)
        return Step(
            self.logits[rows],
            self.top[rows],
            self.seeds[places],
            self.positions[places],
            self.state[rows],
        )

    @property
    def draw(self) -> mx.array:
        """A number in [0, 1) for each row: float32 `[rows, 1]`."""
        return _numbers(self.seeds, self.positions)

    @property
    def chance(self) -> mx.array:
        """A second one, independent of the draw."""
        return _numbers(self.seeds ^ XTC_SALT, self.positions)


class Group:
    """The rows in `places` of the batch, all of one kind."""

    def __init__(
        self, kind: Kind, rows: Sequence[SamplingParams], places: list[int], vocab: int
    ) -> None:
        chosen = [rows[i] for i in places]
        self._kind = kind
        self._places = places
        self._temperature = Temperature(chosen)
        self._spread = Spread(chosen)
        self._truncation = Truncation(chosen)
        self._steering = Steering(chosen) if any(map(is_adaptive, chosen)) else None
        self._bound = Bound(chosen, vocab) if kind is Kind.MIROSTAT else None

    @property
    def has_state(self) -> bool:
        """Whether a draw changes what is remembered of a row."""
        return self._bound is not None or self._steering is not None

    def __call__(self, step: Step) -> tuple[mx.array, mx.array]:
        """Tokens int32 `[rows]` and the next state `[rows, 2]` of these rows."""
        tokens, state = self._chosen(step.of(self._places))
        return tokens[:, 0].astype(mx.int32), state

    def _chosen(self, step: Step) -> tuple[mx.array, mx.array]:
        if self._kind is Kind.GREEDY:
            return mx.argmax(step.logits, axis=-1, keepdims=True), step.state
        if self._kind is Kind.PLAIN:
            scores = (step.logits - step.top) / self._temperature.middle
            return inverted(exponential(scores), step.draw), step.state
        some = self._candidates(step)
        if self._bound is not None:
            return self._bounded(self._bound, some, step)
        some = self._truncation(some, step.chance if self._truncation.needs_chance else None)
        return self._drawn(some, step)

    def _candidates(self, step: Step) -> Candidates:
        width = HEADS.get(self._kind)
        if width is None:
            least = mx.full(step.top.shape, -mx.inf)
            if self._kind is Kind.WHOLE:
                least = self._spread(step.logits, step.top)
            return candidates(step.logits - step.top, least, None)
        ids = likeliest(step.logits, width)
        head = mx.take_along_axis(step.logits, ids, axis=-1)
        return candidates(head - step.top, self._spread(step.logits, step.top), ids)

    def _drawn(self, some: Candidates, step: Step) -> tuple[mx.array, mx.array]:
        weights = self._temperature(some, has_top=self._truncation.keeps_top)
        if self._steering is None:
            return some.tokens(inverted(weights, step.draw)), step.state
        places = inverted(self._steering.weighed(weights, step.state), step.draw)
        state = self._steering.after(weights, places, step.state)
        return some.tokens(places), state

    def _bounded(self, bound: Bound, some: Candidates, step: Step) -> tuple[mx.array, mx.array]:
        scores = (step.logits - step.top) / self._temperature.of(some)
        weights = exponential(scores)
        places = inverted(bound.kept(scores, weights, step.state), step.draw)
        return places, bound.after(weights, places, step.state)


def inverted(weights: mx.array, draw: mx.array) -> mx.array:
    """Where the cumulative weight passes the draw: `[rows, 1]`. Never a place without weight:
    where the rounding of the sums (a GPU adds in trees) leads to one, the heaviest."""
    mass = mx.cumsum(weights, axis=-1)
    passed = mx.sum(mass <= draw * mass[:, -1:], axis=-1, keepdims=True)
    place = mx.minimum(passed, weights.shape[-1] - 1)
    heaviest = mx.argmax(weights, axis=-1, keepdims=True)
    return mx.where(at(weights, place) > 0, place, heaviest.astype(place.dtype))


def _numbers(seeds: np.ndarray, positions: np.ndarray) -> mx.array:
    return mx.array(uniforms(seeds, positions), dtype=mx.float32)[:, None]
