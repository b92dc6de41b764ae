"""Which kinds of KV state a model gets: for its prompts, and for the rows that decode."""

from functools import partial
from typing import Any

import mlx.nn as nn
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache

from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.kv.capped import CappedKVCache
from mlxcel.engine.kv.codec import LayerCodec
from mlxcel.engine.kv.coded import CodedKVCache
from mlxcel.engine.kv.library import LibraryKV, SoloKV
from mlxcel.engine.kv.mixed import MixedKV
from mlxcel.engine.kv.modes import KVPlan, are_plain
from mlxcel.engine.kv.ragged import RaggedKV
from mlxcel.engine.kv.trial import knows_ragged_rows
from mlxcel.worker.precision import Backend

ALONE = frozenset({"nemotron_h", "jamba", "mamba", "mamba2", "afmoe"})
"""Families of one slot by contract, though mlx-lm could merge their caches (scheduler 4)."""


def row_caches(network: nn.Module, plan: KVPlan) -> list[Any]:
    """Fresh caches for one prefill, one a layer."""
    caches = make_prompt_cache(network)
    return [_row_cache(cache, plan.cap, plan.codec(layer)) for layer, cache in enumerate(caches)]


def batch_for(
    network: nn.Module, slots: int, plan: KVPlan, backend: Backend = Backend.CPU
) -> KVBatch:
    """The leanest state for up to `slots` rows that the model's caches and the backend allow."""
    caches = make_prompt_cache(network)
    if are_plain(caches):
        is_cuda = backend is Backend.CUDA
        can_own = slots > 1 and is_cuda and not plan.codecs
        own = can_own and knows_ragged_rows(network)
        return RaggedKV(
            len(caches),
            slots,
            cap=plan.cap,
            needs_no_mask=own,
            codecs=plan.codecs,
            is_steady=is_cuda,
        )
    kind = SoloKV if slots == 1 or not _can_merge(caches) else LibraryKV
    if not plan.codecs:
        return kind(partial(make_prompt_cache, network))
    attends = [type(cache) is KVCache for cache in caches]
    codecs = [codec for codec, is_ours in zip(plan.codecs, attends, strict=True) if is_ours]
    attending = RaggedKV(len(codecs), slots, codecs=codecs)
    return MixedKV(attending, kind(partial(_beside, network)), attends)


def can_batch(network: nn.Module, family: str) -> bool:
    """Whether rows of this model may decode together."""
    return family not in ALONE and _can_merge(make_prompt_cache(network))


def can_cohort(network: nn.Module) -> bool:
    """Whether several prompts may be read in one forward, padded on the right: padding must
    leave no trace, as it does in a recurrent state or a window that moves on."""
    return are_plain(make_prompt_cache(network))


def _row_cache(cache: Any, cap: int, codec: LayerCodec | None) -> Any:
    if type(cache) is not KVCache:
        return cache
    if cap:
        return CappedKVCache(cap, codec)
    return cache if codec is None else CodedKVCache(codec)


def _beside(network: nn.Module) -> list[Any]:
    """Fresh caches of the layers that do not attend to every token."""
    return [cache for cache in make_prompt_cache(network) if type(cache) is not KVCache]


def _can_merge(caches: list[Any]) -> bool:
    """A list of caches has `merge` whatever it holds: what it holds is asked."""
    return all(
        _can_merge(list(cache.caches))
        if isinstance(cache, CacheList)
        else hasattr(type(cache), "merge")
        for cache in caches
    )
