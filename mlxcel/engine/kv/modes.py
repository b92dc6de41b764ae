"""What is kept of each layer's KV: the KV mode (engine contract, cache 9 and 10)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import (
    ArraysCache,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from mlxcel.core.errors import StartupError
from mlxcel.core.kv_modes import LATENT, PLAIN_ONLY, SYMMETRIC
from mlxcel.engine.kv.codec import AFFINE_GROUPS, Affine, Codec, Int8, LayerCodec, Plain
from mlxcel.engine.kv.modenames import Mode, asked_mode
from mlxcel.engine.kv.turbo import Turbo, is_power_of_two

log = logging.getLogger(__name__)

BESIDE = (ArraysCache, RotatingKVCache, ChunkedKVCache)
"""Caches of layers that keep their state as it is, beside layers that get the mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPlan:
    """One for the life of a worker."""

    effective: str = "fp16"
    """The name of the mode after fallbacks."""
    cap: int = 0
    """`max_kv_size` in force; 0: every token counts."""
    codecs: tuple[LayerCodec | None, ...] = ()
    """For each layer what its KV is kept as. None: as it is; no codecs: so are all."""

    def codec(self, layer: int) -> LayerCodec | None:
        return self.codecs[layer] if self.codecs else None

    def with_one_more(self) -> "KVPlan":
        """Of a network that keeps something in a layer of its own besides: that stays as it is."""
        return replace(self, codecs=(*self.codecs, None)) if self.codecs else self

    @property
    def layout(self) -> str:
        """What one must know to read kept KV: files of another layout are foreign."""
        names = ("plain" if codec is None else codec.name for codec in self.codecs)
        runs = (f"{len(list(run))}x{name}" for name, run in groupby(names))
        return ",".join((self.effective, *runs))


def plan_kv(network: nn.Module, family: str, cache: Mapping[str, Any]) -> KVPlan:
    """`cache` is the section of the options. What the model cannot have is told in the log and
    given up for `fp16`, but what nobody can have is refused: StartupError. Models with windows or
    states of their own ignore `max_kv_size`."""
    caches: list[Any] = make_prompt_cache(network)
    mode = _granted(asked_mode(cache["kv"]), family, caches)
    codecs = () if mode.is_plain else _codecs(mode, network, cache["kv"])
    cap: int = cache["max_kv_size"] if are_plain(caches) else 0
    if codecs and mode.is_turbo and cap:
        log.warning("cache.max_kv_size %d has no effect on the KV of mode %s", cap, mode.name)
        cap = 0
    return KVPlan(effective=mode.name if codecs else "fp16", cap=cap, codecs=codecs)


def are_plain(caches: list[Any]) -> bool:
    return all(type(cache) is KVCache for cache in caches)


def _granted(mode: Mode, family: str, caches: list[Any]) -> Mode:
    """After what the family says."""
    if mode.is_plain:
        return mode
    if family in PLAIN_ONLY:
        raise StartupError(f"cache.kv.mode {mode.name}: {family} takes fp16 only")
    if family in LATENT:
        return _given_up(mode, f"{family} keeps latent vectors, which are small already")
    odd = {type(cache).__name__ for cache in caches if type(cache) not in (KVCache, *BESIDE)}
    if odd or not any(type(cache) is KVCache for cache in caches):
        kinds = ", ".join(sorted(odd)) or "no layer that attends to every token"
        return _given_up(mode, f"{family} has {kinds}")
    if mode.name == "turbo4" and family not in SYMMETRIC:
        log.info("KV mode turbo4 -> fp16+turbo4: the keys of %s need more than four bits", family)
        return replace(mode, name="fp16+turbo4", keys="plain")
    return mode


def _given_up(mode: Mode, why: str) -> Mode:
    log.warning("KV mode %s -> fp16: %s", mode.name, why)
    return Mode(name="fp16")


def _codecs(mode: Mode, network: nn.Module, kv: Mapping[str, Any]) -> tuple[LayerCodec | None, ...]:
    """None at all where no layer would get one."""
    try:
        dims = _dims(network)
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError, IndexError) as why:
        log.warning("KV mode %s -> fp16: a forward to measure failed: %s", mode.name, why)
        return ()
    attending = [layer for layer, dim in enumerate(dims) if dim is not None]
    edge: int = kv["boundary_v_layers"] if mode.is_turbo and not mode.bits else 0
    edges = {*attending[:edge], *attending[len(attending) - edge :]}
    skipped = set(attending[-1:]) if mode.bits and kv["skip_last_layer"] else set()
    misfits: set[str] = set()
    codecs = tuple(
        None
        if dim is None or layer in skipped
        else _layer_codec(mode, layer, dim, misfits, has_values=layer not in edges)
        for layer, dim in enumerate(dims)
    )
    for misfit in sorted(misfits):
        log.warning("KV mode %s: %s", mode.name, misfit)
    if not any(codecs):
        log.warning("KV mode %s -> fp16: no layer of %d is left for it", mode.name, len(attending))
        return ()
    return codecs


def _dims(network: nn.Module) -> list[tuple[int, int] | None]:
    """The sizes of a key and a value of each layer; None: it keeps another state. Off a forward
    that nobody evaluates."""
    caches: list[Any] = make_prompt_cache(network)
    network(mx.array([[0]]), cache=caches)
    return [
        (cache.keys.shape[3], cache.values.shape[3]) if type(cache) is KVCache else None
        for cache in caches
    ]


def _layer_codec(
    mode: Mode, layer: int, dims: tuple[int, int], misfits: set[str], *, has_values: bool
) -> LayerCodec | None:
    keys = _side(mode, mode.keys, dims[0], misfits, layer=layer, side="k")
    kind = mode.values if has_values else "plain"
    values = _side(mode, kind, dims[1], misfits, layer=layer, side="v")
    if keys == values == Plain():
        return None
    recent = mode.recent if isinstance(values, Turbo) else 0
    return LayerCodec(keys=keys, values=values, recent=recent, recent_dim=dims[1])


def _side(mode: Mode, kind: str, dim: int, misfits: set[str], *, layer: int, side: str) -> Codec:
    match kind:
        case "int8":
            return Int8()
        case "turbo4" | "turbo3" if is_power_of_two(dim):
            return Turbo(int(kind[-1]), dim, layer=layer, side=side)
        case "affine" if fitting := [g for g in AFFINE_GROUPS if dim % g == 0 and g <= mode.group]:
            if fitting[-1] < mode.group:
                misfits.add(f"groups of {fitting[-1]} in place of {mode.group}, for heads of {dim}")
            return Affine(mode.bits, fitting[-1])
    if kind != "plain":
        misfits.add(f"{kind} does not fit heads of {dim}, which stay as they are")
    return Plain()
