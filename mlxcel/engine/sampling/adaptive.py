"""Adaptive-p: steers the probability of the drawn tokens to a target; takes the place of the draw.

With p the probabilities after truncation and temperature, and S, W the decayed sums of the
probabilities drawn so far and of their weights, the tokens are weighted anew by

    aim    = clip(2 * target - S / W, 0, 1)
    d      = |p - aim| / 0.3
    weight = exp(-10 * d**2 / (1 + d))

and after token t is drawn, S becomes p[t] + decay * S and W becomes 1 + decay * W. Both begin
where they would end if the target had always been met: target / (1 - decay), 1 / (1 - decay);
decay at most 0.99. (The method and its constants: adaptive-p by MrJackSpade, llama.cpp #17927.)
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.core.sampling import AdaptiveP, SamplingParams
from mlxcel.engine.sampling.rowwise import at, column, exponential, total

WIDTH = 0.3
SHARPNESS = 10.0
LONGEST_DECAY = 0.99
OFF = AdaptiveP(target=-1.0, decay=0.0)


def is_adaptive(row: SamplingParams) -> bool:
    return row.adaptive is not None and row.adaptive.target >= 0


def initial_sums(rule: AdaptiveP) -> tuple[float, float]:
    weight = 1 / (1 - _decay(rule))
    return min(rule.target, 1.0) * weight, weight


class Steering:
    """Of a list of rows, some of which are adaptive; the others are left alone."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        rules = [row.adaptive or OFF for row in rows]
        self._is_on = mx.array([[is_adaptive(row)] for row in rows])
        self._target = column([min(rule.target, 1.0) for rule in rules])
        self._decay = column([_decay(rule) for rule in rules])

    def weighed(self, weights: mx.array, state: mx.array) -> mx.array:
        """What to draw by. `weights` `[rows, width]`, 0 for what is gone; `state` `[rows, 2]`."""
        mean = state[:, :1] / mx.where(self._is_on, state[:, 1:], 1.0)
        aim = mx.clip(2 * self._target - mean, 0.0, 1.0)
        distance = mx.abs(weights / total(weights) - aim) / WIDTH
        steered = exponential(-SHARPNESS * mx.square(distance) / (1 + distance))
        return mx.where(self._is_on, mx.where(weights > 0, steered, 0.0), weights)

    def after(self, weights: mx.array, places: mx.array, state: mx.array) -> mx.array:
        """The next state: `places` `[rows, 1]` were drawn."""
        drawn = at(weights, places) / total(weights)
        new = mx.concatenate([drawn, mx.ones_like(drawn)], axis=-1)
        return mx.where(self._is_on, new + self._decay * state, state)


def _decay(rule: AdaptiveP) -> float:
    return min(max(rule.decay, 0.0), LONGEST_DECAY)
