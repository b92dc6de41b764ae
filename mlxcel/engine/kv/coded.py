"""KV of a prompt that is kept in another form than the model made it in (`LayerCodec`).

Attention sees what the kept form says of every token, those of the current chunk too: what a
token sees does not depend on how the prompt was cut.
"""

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask

from mlxcel.engine.kv.codec import LayerCodec
from mlxcel.engine.kv.columns import STEP


class CodedKVCache:
    """One layer of one prompt, or of a cohort of them; column i is position i."""

    def __init__(self, codec: LayerCodec) -> None:
        self.codec = codec
        self.parts: tuple[mx.array, ...] = ()
        """What is kept, `[rows, heads, columns, any]` each, with room to spare; empty before the
        first token."""
        self.offset = 0
        self.recent: mx.array | None = None
        """The newest values as they are, up to position `offset`: those of the last chunk, and
        as many before them as the codec wants."""

    @classmethod
    def over(cls, parts: tuple[mx.array, ...], length: int, codec: LayerCodec) -> "CodedKVCache":
        """Over what was kept before; nothing of it is recent."""
        cache = cls(codec)
        cache.parts, cache.offset = parts, length
        if codec.recent:
            heads, dtype = parts[0].shape[1], parts[0].dtype
            cache.recent = mx.zeros((1, heads, 0, codec.recent_dim), dtype=dtype)
        return cache

    @property
    def recent_start(self) -> int:
        """The position of the oldest of them."""
        return self.offset - (0 if self.recent is None else self.recent.shape[2])

    @property
    def state(self) -> tuple[tuple[mx.array, ...], mx.array | None, int]:
        """As of mlx-lm's caches: what is to be evaluated after a chunk."""
        return self.parts, self.recent, self.offset

    @property
    def nbytes(self) -> int:
        recent = 0 if self.recent is None else self.recent.nbytes
        return sum(part.nbytes for part in self.parts) + recent

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        """For a forward of `n` tokens that is about to begin."""
        return create_attention_mask(n, self.offset, return_array, window_size)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Appends `[rows, heads, n, dim]`; returns all of them, as they are kept."""
        until = self.offset + keys.shape[2]
        new = self.codec.encode(keys, values)
        self.parts = tuple(map(self._with_room, self.parts or new, new))
        for part, columns in zip(self.parts, new, strict=True):
            part[:, :, self.offset : until] = columns
        self.offset = until
        self._remember(values)
        return self.codec.decode([part[:, :, :until] for part in self.parts], keys.dtype)

    def _with_room(self, part: mx.array, new: mx.array) -> mx.array:
        until = self.offset + new.shape[2]
        have = part.shape[2] if self.parts else 0
        if until <= have:
            return part
        columns = -(-until // STEP) * STEP
        room = mx.zeros((*new.shape[:2], columns - self.offset, new.shape[3]), dtype=new.dtype)
        return mx.concatenate([part[:, :, : self.offset], room], axis=2) if self.offset else room

    def _remember(self, values: mx.array) -> None:
        """A cohort is read in one chunk: the newest of a short row are in it, before its end."""
        if not self.codec.recent:
            return
        if self.recent is not None and values.shape[2] < self.codec.recent:
            before = self.codec.recent - values.shape[2]
            values = mx.concatenate([self.recent[:, :, -before:], values], axis=2)
        self.recent = values
