"""A draw in view of a proposal that was itself drawn, out of known odds: it is taken as often as
can be, and what is said is still distributed as the row's own chain has it (speculative, 5).

Speculative sampling (Leviathan, Kalman, Matias 2023, algorithm 1). A proposal d is taken where
u * q(d) <= p(d); else the token is drawn from what p has more than q. So p and q agree in
sum(min(p, q)) of all draws, which no other rule exceeds.
"""

from typing import NamedTuple, Self

import mlx.core as mx

from mlxcel.engine.sampling.rowwise import at, total

NOTHING = -1
"""Instead of the proposal of a row that has none, which draws as ever."""


class Proposed(NamedTuple):
    """One token for each row, and out of what it was drawn."""

    tokens: mx.array
    """int32 `[rows, 1]`, or `NOTHING`."""
    odds: mx.array
    """float32 `[rows, n]`, a sum of 1 each. Tokens from n on, were there more, have none."""

    def of(self, rows: mx.array) -> Self:
        return type(self)(self.tokens[rows], self.odds[rows])

    def among(self, ids: mx.array | None, width: int) -> Self:
        """As places among candidates `[rows, width]`: `NOTHING` where the token is not there."""
        if ids is None:
            missing = max(width - self.odds.shape[-1], 0)
            return type(self)(self.tokens, mx.pad(self.odds, [(0, 0), (0, missing)])[:, :width])
        is_known = ids < self.odds.shape[-1]
        odds = mx.where(is_known, at(self.odds, mx.where(is_known, ids, 0)), 0.0)
        is_it = ids.astype(mx.int32) == self.tokens
        place = mx.argmax(is_it, axis=-1, keepdims=True).astype(mx.int32)
        return type(self)(mx.where(at(is_it, place), place, NOTHING), odds)


def judged(weights: mx.array, proposed: Proposed, number: mx.array) -> tuple[mx.array, mx.array]:
    """Whether each proposal is taken, bool `[rows, 1]`, and the weights of what is said where it
    is not, `[rows, width]`. `weights` of the row's own draw, up to a factor, 0: gone; `proposed`
    as places among them; `number` in [0, 1), `[rows, 1]`, independent of every other."""
    own = weights / total(weights)
    place = mx.maximum(proposed.tokens, 0)
    likely, foretold = at(own, place), at(proposed.odds, place)
    # A number may be 0, which lets nothing through that cannot be said.
    is_taken = (proposed.tokens >= 0) & (likely > 0) & (number * foretold <= likely)
    rest = mx.maximum(own - proposed.odds, 0.0)
    # p = q but for rounding leaves nothing, and refuses about as often.
    return is_taken, mx.where(total(rest) > 0, rest, own)
