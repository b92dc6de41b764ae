"""Columns of rows as they are kept (`Segment.layers`): out of row caches, and into them."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from mlxcel.engine.cache.segment import Layers, copy_of
from mlxcel.engine.kv.capped import CappedKVCache
from mlxcel.engine.kv.codec import LayerCodec
from mlxcel.engine.kv.coded import CodedKVCache
from mlxcel.engine.kv.modes import KVPlan

ATTENDING = (KVCache, CappedKVCache, CodedKVCache)
"""Caches of which one column more is one token more."""


def row_parts(caches: list[Any], index: int, start: int, stop: int) -> Layers:
    """Copies of columns start..stop of row `index`, not evaluated. Under a cap none of them may
    have been dropped yet (`are_whole`)."""
    return tuple(columns_of(parts_of(cache), index, start, stop) for cache in caches)


def are_whole(caches: list[Any]) -> bool:
    """Whether every token that was read is still held; a cap drops the oldest."""
    return all(getattr(cache, "start", 0) == 0 for cache in caches)


def caches_from(layers: Layers, length: int, plan: KVPlan) -> list[Any]:
    """Row caches over these very arrays, `length` tokens of which count, to be read on from. What
    stands behind those is room that will be written."""
    return [
        _cache(parts, length, plan.cap, plan.codec(layer)) for layer, parts in enumerate(layers)
    ]


def parts_of(cache: Any) -> tuple[mx.array, ...]:
    """What a row cache holds, `[rows, heads, columns, any]` each, room included."""
    parts: tuple[mx.array, ...] | None = getattr(cache, "parts", None)
    return (cache.keys, cache.values) if parts is None else parts


def column_bytes(caches: list[Any]) -> int:
    """Bytes of one token in all layers that attend to every token. `caches` of one row that has
    read one; they may have been measured without being evaluated."""
    attending = (cache for cache in caches if isinstance(cache, ATTENDING))
    parts = (part for cache in attending for part in parts_of(cache))
    return sum(part[:1, :, :1].nbytes for part in parts)


def columns_of(
    parts: Sequence[mx.array], index: int, start: int, stop: int
) -> tuple[mx.array, ...]:
    return tuple(copy_of(part[index : index + 1, :, start:stop]) for part in parts)


def _cache(parts: tuple[mx.array, ...], length: int, cap: int, codec: LayerCodec | None) -> Any:
    if cap:
        capped = CappedKVCache(cap, codec)
        # Its last column is its newest token: it has no room.
        capped.parts = tuple(part[:, :, :length] for part in parts)
        capped.offset = length
        return capped
    if codec is not None:
        return CodedKVCache.over(parts, length, codec)
    cache = KVCache()
    (cache.keys, cache.values), cache.offset = parts, length
    return cache
