"""KV whose wide steps come in few shapes.

On CUDA MLX leaves attention of several queries to cuDNN, which plans each new shape anew: tens of
milliseconds, where a decode step takes five. A text that grows would bring a new shape with every
wide step; so these see room for more, in steps, behind a mask.
"""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from mlxcel.engine.kv.columns import STEP
from mlxcel.worker.precision import Backend


def room(columns: int) -> int:
    """Columns of a wide step that needs so many."""
    return -(-columns // STEP) * STEP


def staircase(first: int, queries: int, columns: int) -> mx.array:
    """bool `[queries, columns]`: query n stands at `first` + n and sees what is before it."""
    return mx.arange(columns)[None] <= first + mx.arange(queries)[:, None]


def steady(caches: list[Any], backend: Backend) -> list[Any]:
    """Fresh caches, in a steady form where that is worth something."""
    if backend is not Backend.CUDA:
        return caches
    return [SteadyKVCache() if type(cache) is KVCache else cache for cache in caches]


class SteadyKVCache(KVCache):
    """Of one row. Steps of one token are those of a KVCache."""

    keys: mx.array | None
    values: mx.array | None
    offset: int

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        first, span = self.offset, keys.shape[2]
        self.offset = first + span
        self.keys = all_keys = _written(self.keys, keys, first)
        self.values = all_values = _written(self.values, values, first)
        seen = self.offset if span == 1 else room(self.offset)
        return all_keys[..., :seen, :], all_values[..., :seen, :]

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | None:
        """For the step that comes, of `n` tokens."""
        assert window_size is None, "it sees all its positions"
        return None if n == 1 else staircase(self.offset, n, room(self.offset + n))


def _written(held: mx.array | None, new: mx.array, first: int) -> mx.array:
    last = first + new.shape[2]
    if held is None or held.shape[2] < last:
        wide = mx.zeros((*new.shape[:2], room(last), new.shape[3]), dtype=new.dtype)
        if held is not None and first:
            wide[..., :first, :] = held[..., :first, :]
        held = wide
    held[..., first:last, :] = new
    return held
