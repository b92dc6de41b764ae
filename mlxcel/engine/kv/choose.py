"""Which kind of batch state a model gets."""

import mlx.nn as nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.kv.library import LibraryKV, SoloKV
from mlxcel.engine.kv.ragged import RaggedKV


def batch_for(network: nn.Module, slots: int) -> KVBatch:
    """The leanest batch state the model's caches allow."""
    caches = make_prompt_cache(network)
    if all(type(cache) is KVCache for cache in caches):
        return RaggedKV(len(caches), slots)
    return LibraryKV() if can_batch(network) else SoloKV()


def can_batch(network: nn.Module) -> bool:
    """Whether rows of this model can decode together: every cache must be mergeable."""
    return all(hasattr(type(cache), "merge") for cache in make_prompt_cache(network))
