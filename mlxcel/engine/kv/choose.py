"""Which kinds of KV state a model gets: for its prompts, and for the rows that decode."""

from functools import partial
from typing import Any

import mlx.nn as nn
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache

from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.kv.capped import CappedKVCache
from mlxcel.engine.kv.library import LibraryKV, SoloKV
from mlxcel.engine.kv.ragged import RaggedKV
from mlxcel.engine.kv.trial import knows_ragged_rows
from mlxcel.worker.precision import Backend

ALONE = frozenset({"nemotron_h", "jamba", "mamba", "mamba2", "afmoe"})
"""Families of one slot by contract, though mlx-lm could merge their caches (scheduler 4)."""


def row_caches(network: nn.Module, max_kv_size: int) -> list[Any]:
    """Fresh caches for one prefill, one a layer. `max_kv_size` 0: every token counts; models
    with windows or states of their own ignore it."""
    caches: list[Any] = make_prompt_cache(network)
    if max_kv_size > 0 and _are_plain(caches):
        return [CappedKVCache(max_kv_size) for _ in caches]
    return caches


def batch_for(
    network: nn.Module, slots: int, max_kv_size: int, backend: Backend = Backend.CPU
) -> KVBatch:
    """The leanest state for up to `slots` rows that the model's caches and the backend allow."""
    caches = make_prompt_cache(network)
    if _are_plain(caches):
        own = slots > 1 and backend is Backend.CUDA and knows_ragged_rows(network)
        return RaggedKV(len(caches), slots, cap=max_kv_size, needs_no_mask=own)
    kind = SoloKV if slots == 1 or not _can_merge(caches) else LibraryKV
    return kind(partial(make_prompt_cache, network))


def can_batch(network: nn.Module, family: str) -> bool:
    """Whether rows of this model may decode together."""
    return family not in ALONE and _can_merge(make_prompt_cache(network))


def can_cohort(network: nn.Module) -> bool:
    """Whether several prompts may be read in one forward, padded on the right: padding must
    leave no trace, as it does in a recurrent state or a window that moves on."""
    return _are_plain(make_prompt_cache(network))


def _are_plain(caches: list[Any]) -> bool:
    return all(type(cache) is KVCache for cache in caches)


def _can_merge(caches: list[Any]) -> bool:
    """A list of caches has `merge` whatever it holds: what it holds is asked."""
    return all(
        _can_merge(list(cache.caches))
        if isinstance(cache, CacheList)
        else hasattr(type(cache), "merge")
        for cache in caches
    )
