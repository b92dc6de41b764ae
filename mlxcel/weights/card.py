"""What an estimate of memory must know of a model, read off the loaded model itself.

The KV is measured: MLX is lazy, so a forward of one token that nobody evaluates gives the shapes
and types of everything a family keeps, whatever its config calls them.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import CacheList, make_prompt_cache

from mlxcel.weights.load import HALF_BYTES, LoadedModel
from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCard:
    """A token costs `2 * kv_heads * head_dim * kv_dtype_bytes` in each of the
    `attention_layers`, those that attend to every token. `head_dim` is the mean over layers,
    keys and values, where they differ (latent attention)."""

    weights_bytes: int
    attention_layers: int
    kv_heads: int
    head_dim: int
    kv_dtype_bytes: int
    state_bytes: int
    """What a row keeps whatever its length: recurrent and convolution state, full windows."""
    hidden: int
    widest_projection: int
    """The most numbers one layer makes of one token; the head does not count."""
    vocab: int
    unfused_heads: int = 0
    """Query heads whose scores a layer lays out in memory; 0 where MLX's attention is fused."""


FUSED_HEAD_DIMS = frozenset({64, 80, 128})
"""What MLX's fused attention over a prompt takes on Metal (mlx 0.32); CUDA's takes these too, in
16 bits. Others, and everything on a CPU, go through a matrix of scores."""


@dataclass(frozen=True, slots=True)
class _Kv:
    layers: int
    heads: int
    head_dim: int
    dtype_bytes: int
    state_bytes: int


def memory_card(model: LoadedModel) -> MemoryCard:
    config = _text_config(model.config)
    kv = _measured(model.network) or _configured(config)
    return MemoryCard(
        weights_bytes=model.weights_bytes,
        attention_layers=kv.layers,
        kv_heads=kv.heads,
        head_dim=kv.head_dim,
        kv_dtype_bytes=kv.dtype_bytes,
        state_bytes=kv.state_bytes,
        hidden=model.hidden_size,
        widest_projection=_widest(model.network, config, model.vocab_size),
        vocab=model.vocab_size,
        unfused_heads=0 if _is_fused(model.backend, kv) else config.get("num_attention_heads") or 0,
    )


def _is_fused(backend: Backend, kv: _Kv) -> bool:
    if backend is Backend.CPU or kv.head_dim not in FUSED_HEAD_DIMS:
        return False
    return backend is Backend.METAL or kv.dtype_bytes == HALF_BYTES


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a model of several modalities, the part that speaks."""
    return {**config, **(config.get("text_config") or {})}


def _measured(network: nn.Module) -> _Kv | None:
    """What a forward of one token leaves in fresh caches; None for a network that wants more
    than tokens."""
    caches = make_prompt_cache(network)
    try:
        network(mx.array([[0]]), cache=caches)
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError, IndexError) as why:
        log.info("KV sizes are taken from the config, since a forward to measure failed: %s", why)
        return None
    growing: list[Any] = []
    state = 0
    for cache in _leaves(caches):
        bound = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
        if getattr(cache, "keys", None) is None:
            flat = cast(list[tuple[str, Any]], tree_flatten(cache.state))
            state += sum(array.nbytes for _, array in flat if isinstance(array, mx.array))
        elif bound:
            state += _token_elements(cache) * cache.keys.dtype.size * bound
        else:
            growing.append(cache)
    return _growing(growing, state)


def _growing(caches: list[Any], state_bytes: int) -> _Kv:
    if not caches:
        return _Kv(0, 0, 0, 0, state_bytes)
    heads, _ = Counter(cache.keys.shape[1] for cache in caches).most_common(1)[0]
    elements = sum(_token_elements(cache) for cache in caches)
    head_dim = math.ceil(elements / (2 * heads * len(caches)))
    return _Kv(len(caches), heads, head_dim, caches[0].keys.dtype.size, state_bytes)


def _token_elements(cache: Any) -> int:
    """Numbers that one token leaves in a layer: keys and values are `[1, heads, room, dim]`."""
    return sum(int(array.shape[1] * array.shape[3]) for array in (cache.keys, cache.values))


def _leaves(caches: list[Any]) -> Iterator[Any]:
    for cache in caches:
        if isinstance(cache, CacheList):
            yield from _leaves(list(cache.caches))
        elif cache is not None:
            yield cache


def _configured(config: Mapping[str, Any]) -> _Kv:
    """By the names most configs use, as if every layer attended to every token."""
    heads = config.get("num_attention_heads") or 1
    return _Kv(
        layers=config.get("num_hidden_layers") or 0,
        heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or (config.get("hidden_size") or 0) // heads,
        dtype_bytes=4 if config.get("torch_dtype") == "float32" else 2,
        state_bytes=0,
    )


def _widest(network: nn.Module, config: Mapping[str, Any], vocab: int) -> int:
    """Over all matrices `[out, in]`, quantised or not, and stacks of experts `[experts, out,
    in]`, of which each token meets a few."""
    experts = config.get("num_experts_per_tok") or 1
    widest = 0
    for _, module in network.named_modules():
        weight = module.get("weight")
        if weight is None or isinstance(module, nn.Embedding | nn.QuantizedEmbedding):
            continue
        if weight.ndim == 2 and weight.shape[0] != vocab:
            widest = max(widest, weight.shape[0])
        elif weight.ndim == 3 and module.__class__.__name__.endswith("SwitchLinear"):
            widest = max(widest, weight.shape[1] * experts)
    return widest or config.get("intermediate_size") or 4 * (config.get("hidden_size") or 0)
