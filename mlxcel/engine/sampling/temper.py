"""Step 12 of the chain: the temperature of each row, fixed or moving with the entropy."""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.core.sampling import DynamicTemperature, SamplingParams
from mlxcel.engine.sampling.candidates import Candidates
from mlxcel.engine.sampling.rowwise import column, exponential, fused, peak, total

COLDEST = 1e-6
FIXED = DynamicTemperature(span=0.0, exponent=1.0)


class Temperature:
    """Of a list of rows."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        dynamic = [row.dynamic_temperature or FIXED for row in rows]
        self.middle = column([row.temperature for row in rows])
        self._span = column([rule.span for rule in dynamic])
        self._exponent = column([rule.exponent for rule in dynamic])
        self._is_dynamic = any(rule.span > 0 for rule in dynamic)
        self.is_neutral = not self._is_dynamic and all(row.temperature == 1 for row in rows)

    def __call__(self, some: Candidates, *, has_top: bool) -> mx.array:
        """Weights after the temperature, 0 for what is gone. `has_top`: no row has lost its
        likeliest token, whose score is 0; a row that has weighs against its best one left."""
        scores = some.scores
        if not has_top:
            scores = scores - peak(mx.where(some.weights > 0, scores, -mx.inf))
        return _tempered(scores, self.of(some), some.weights)

    def of(self, some: Candidates) -> mx.array:
        """`[rows, 1]`. Dynamic: from T - span (at least 0) to T + span, by the entropy of what is
        kept over the largest it could have, to the power of the exponent; one token alone has T.
        """
        if not self._is_dynamic:
            return self.middle
        mass = total(some.weights)
        entropy = mx.log(mass) - total(some.weights * some.scores) / mass
        count = mx.sum(some.weights > 0, axis=-1, keepdims=True)
        share = mx.clip(entropy / mx.log(mx.maximum(count, 2)), 0.0, 1.0)
        low, high = mx.maximum(self.middle - self._span, 0.0), self.middle + self._span
        moved = mx.maximum(low + (high - low) * mx.power(share, self._exponent), COLDEST)
        return mx.where((self._span > 0) & (count > 1), moved, self.middle)


@fused
def _tempered(scores: mx.array, temperature: mx.array, weights: mx.array) -> mx.array:
    return mx.where(weights > 0, exponential(scores / temperature), 0.0)
