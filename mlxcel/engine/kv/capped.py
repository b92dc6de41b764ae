"""KV of a prompt of which only the newest tokens count: `max_kv_size`.

What fell out of the window is dropped before each forward, so the memory of a long prompt is
bounded by the window and one chunk. RoPE always sees the true position (engine contract, cache
9). mlx-lm's RotatingKVCache is close, but reorders what it holds.
"""

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask


class CappedKVCache:
    """One layer of one prompt, or of a cohort of them. A query sees `cap` keys, its own included.

    Column i of `keys` and `values`, `[rows, heads, columns, dim]`, is position `start + i`. The
    last chunk is held in full until the next forward: in a cohort the newest tokens of a short
    row are not at the end.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = 0
        """Tokens that were processed, those dropped included: where RoPE goes on."""

    @property
    def start(self) -> int:
        """The position of the oldest token held."""
        return self.offset - (0 if self.keys is None else self.keys.shape[2])

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None, int]:
        """As of mlx-lm's caches: what is to be evaluated after a chunk."""
        return self.keys, self.values, self.offset

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.keys, self.values) if a is not None)

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        """For a forward of `n` tokens that is about to begin."""
        window = self.cap if window_size is None else min(window_size, self.cap)
        past = self._past()
        if window == self.cap and past + n <= window:
            return create_attention_mask(n, past, return_array, None)
        return create_attention_mask(n, past, return_array, window)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Appends `[rows, heads, n, dim]`; returns them behind those the first of them sees."""
        past = self._past()
        if past and self.keys is not None and self.values is not None:
            keys = mx.concatenate([self.keys[:, :, -past:], keys], axis=2)
            values = mx.concatenate([self.values[:, :, -past:], values], axis=2)
        self.offset += keys.shape[2] - past
        self.keys, self.values = keys, values
        return keys, values

    def _past(self) -> int:
        """Tokens held that the next one sees."""
        return min(self.offset - self.start, self.cap - 1)
