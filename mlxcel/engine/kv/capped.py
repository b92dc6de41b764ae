"""KV of a prompt of which only the newest tokens count: `max_kv_size`.

What fell out of the window is dropped before each forward, so the memory of a long prompt is
bounded by the window and one chunk. RoPE always sees the true position (engine contract, cache
9). mlx-lm's RotatingKVCache is close, but reorders what it holds.
"""

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask

from mlxcel.engine.kv.codec import LayerCodec


class CappedKVCache:
    """One layer of one prompt, or of a cohort of them. A query sees `cap` keys, its own included.

    Column i of `parts`, `[rows, heads, columns, any]`, is position `start + i`. The last chunk is
    held in full until the next forward: in a cohort the newest tokens of a short row are not at
    the end.
    """

    def __init__(self, cap: int, codec: LayerCodec | None = None) -> None:
        self.cap = cap
        self.codec = codec
        self.parts: tuple[mx.array, ...] = ()
        """Keys and values, or what the codec makes of them; empty before the first token."""
        self.offset = 0
        """Tokens that were processed, those dropped included: where RoPE goes on."""

    @property
    def start(self) -> int:
        """The position of the oldest token held."""
        return self.offset - (self.parts[0].shape[2] if self.parts else 0)

    @property
    def state(self) -> tuple[tuple[mx.array, ...], int]:
        """As of mlx-lm's caches: what is to be evaluated after a chunk."""
        return self.parts, self.offset

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

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
        new = (keys, values) if self.codec is None else self.codec.encode(keys, values)
        self.offset += keys.shape[2]
        self.parts = (
            tuple(
                mx.concatenate([old[:, :, -past:], columns], axis=2)
                for old, columns in zip(self.parts, new, strict=True)
            )
            if past
            else new
        )
        if self.codec is not None:
            return self.codec.decode(self.parts, keys.dtype)
        all_keys, all_values = self.parts
        return all_keys, all_values

    def _past(self) -> int:
        """Tokens held that the next one sees."""
        return min(self.offset - self.start, self.cap - 1)
