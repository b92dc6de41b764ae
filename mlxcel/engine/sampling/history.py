"""The last tokens of every row, on the device: what penalties look at.

Kept there, a step can be built from the unread tokens of the one before. int32 `[rows, width]`,
newest last, -1 where there is nothing. Row i belongs to place i of the batch.
"""

from collections.abc import Sequence

import mlx.core as mx

NOTHING = -1


class History:
    """Owned by the decode loop. As wide as the widest row that has been here asked for."""

    def __init__(self) -> None:
        self.tokens = mx.zeros((0, 0), dtype=mx.int32)

    @property
    def width(self) -> int:
        return self.tokens.shape[1]

    def join(self, said: Sequence[int], width: int) -> None:
        """A row that has said `said`, prompt included, and needs the last `width` of it."""
        self._widen(width)
        if self.width == 0:
            self.tokens = mx.zeros((self.tokens.shape[0] + 1, 0), dtype=mx.int32)
            return
        row = last_tokens(said, self.width)
        self.tokens = mx.concatenate([self.tokens, row])

    def leave(self, place: int) -> None:
        """The last row moves into the place, as it does in the KV batch."""
        last = self.tokens.shape[0] - 1
        if last == 0:
            self.tokens = mx.zeros((0, 0), dtype=mx.int32)
            return
        order = [last if i == place else i for i in range(last)]
        self.tokens = self.tokens[mx.array(order)]

    def push(self, tokens: mx.array) -> None:
        """Every row has said one more token: `[rows]`, read or not."""
        if self.width:
            newest = tokens[:, None].astype(mx.int32)
            self.tokens = mx.concatenate([self.tokens[:, 1:], newest], axis=1)

    def extend(self, place: int, tokens: Sequence[int]) -> None:
        """One row has said several more."""
        if self.width and tokens:
            row = self.after(place, tokens)
            self.tokens[place : place + 1] = row

    def after(self, place: int, tokens: Sequence[int]) -> mx.array:
        """What a row's history will be once it has said `tokens`: `[1, width]`."""
        row = self.tokens[place : place + 1]
        if not self.width:
            return row
        new = mx.array([list(tokens)], dtype=mx.int32).reshape(1, len(tokens))
        return mx.concatenate([row, new], axis=1)[:, len(tokens) :]

    def _widen(self, width: int) -> None:
        missing = width - self.width
        if missing > 0:
            nothing = mx.full((self.tokens.shape[0], missing), NOTHING, dtype=mx.int32)
            self.tokens = mx.concatenate([nothing, self.tokens], axis=1)


def last_tokens(said: Sequence[int], width: int) -> mx.array:
    """`[1, width]`, padded on the left."""
    tail = list(said[-width:]) if width else []
    row = [*[NOTHING] * (width - len(tail)), *tail]
    return mx.array([row], dtype=mx.int32).reshape(1, width)
