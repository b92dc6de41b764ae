"""Adapters into a network: beside its linear layers, to be scaled while it runs, or merged."""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.tuner.lora import LoRAEmbedding, LoRALinear, LoRASwitchLinear

from mlxcel.core.errors import StartupError
from mlxcel.weights.lora.linear import LiveScales, LoraLinear, Part
from mlxcel.weights.lora.low_rank import LowRank
from mlxcel.weights.lora.read import read_adapter, refusal
from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)

LINEAR = (nn.Linear, nn.QuantizedLinear)
EXPERTS = (SwitchLinear, QuantizedSwitchLinear)
TABLES = (nn.Embedding, nn.QuantizedEmbedding)
PACKED_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """The adapters of a loaded model. Their ids are their places."""

    paths: tuple[str, ...]
    scales: tuple[float, ...]
    """Those to start with; of merged adapters those they were merged with."""
    is_fused: bool
    live: LiveScales


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    path: str
    scale: float
    parts: tuple[LowRank, ...]


def add_adapters(
    network: nn.Module, options: Mapping[str, Any] | None, *, family: str, backend: Backend
) -> Adapters | None:
    """`options`: `adapters` (a list of `path` and `scale`), `init_without_apply`, `fuse`.

    Changes the network. None when no adapter is named. Raises StartupError when one cannot be
    used.
    """
    if not options or not options["adapters"]:
        return None
    is_fused = bool(options["fuse"])
    if family == "nemotron_h" and backend is Backend.METAL and not is_fused:
        raise StartupError(
            "adapters of a Nemotron-H model cannot be scaled at run time on Metal; "
            "set lora.fuse, or serve a checkpoint they are fused into"
        )
    read = [_read(row, starts_off=options["init_without_apply"]) for row in options["adapters"]]
    layers = dict(network.named_modules())
    for adapter in read:
        _refuse_misfits(adapter, layers, is_fused=is_fused)
    scales = tuple(adapter.scale for adapter in read)
    adapters = Adapters(
        paths=tuple(adapter.path for adapter in read),
        scales=scales,
        is_fused=is_fused,
        live=LiveScales(scales),
    )
    (_merge if is_fused else _attach)(network, layers, read, adapters)
    for place, adapter in enumerate(read):
        how = "merged" if is_fused else "unfused"
        log.info("adapter %d: %s, scale %g, %s", place, adapter.path, adapter.scale, how)
    return adapters


def _read(row: Mapping[str, Any], *, starts_off: bool) -> _Read:
    path, scale = str(row["path"]), row["scale"]
    is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not is_number or not math.isfinite(scale):
        raise StartupError(f"the scale of the adapter {path} must be a finite number, not {scale}")
    parts = read_adapter(Path(path).expanduser())
    return _Read(path=path, scale=0.0 if starts_off else float(scale), parts=parts)


def _refuse_misfits(adapter: _Read, layers: Mapping[str, nn.Module], *, is_fused: bool) -> None:
    checked = ((part, layers.get(part.layer)) for part in adapter.parts)
    problems = [
        f"{part.layer}: {problem}"
        for part, layer in checked
        if (problem := _misfit(part, layer, is_fused=is_fused)) is not None
    ]
    if problems:
        raise refusal(adapter.path, problems)


def _misfit(part: LowRank, layer: nn.Module | None, *, is_fused: bool) -> str | None:
    if layer is None:
        return "the model has no such layer"
    if not isinstance(layer, LINEAR + EXPERTS + TABLES):
        return f"the model has a {type(layer).__name__} there, which takes no adapter"
    if not is_fused and not isinstance(layer, LINEAR):
        return f"an adapter of a {type(layer).__name__} must be merged: set lora.fuse"
    wanted = _shapes(layer, part.rank)
    seen = (tuple(part.down.shape), tuple(part.up.shape))
    if seen != wanted:
        return f"its shapes are {seen[0]} and {seen[1]}, the layer needs {wanted[0]}, {wanted[1]}"
    return None


def _shapes(layer: nn.Module, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of `down` and `up`."""
    *experts, rows, columns = cast(mx.array, layer["weight"]).shape
    if "scales" in layer:
        columns = columns * PACKED_BITS // int(layer.bits)
    if experts:
        return (*experts, rank, columns), (*experts, rows, rank)
    # A table of embeddings holds one output per row; a linear layer one input per column.
    if isinstance(layer, TABLES):
        rows, columns = columns, rows
    return (columns, rank), (rank, rows)


def _attach(
    network: nn.Module,
    layers: Mapping[str, nn.Module],
    read: Sequence[_Read],
    adapters: Adapters,
) -> None:
    dtype = _activation_dtype(network)
    found = [
        (path, LoraLinear(layers[path], _parts(rows, dtype), adapters.live))
        for path, rows in _by_layer(read)
    ]
    network.update_modules(tree_unflatten(found))


def _parts(rows: Sequence[tuple[int, LowRank]], dtype: mx.Dtype) -> list[Part]:
    # The factor goes in before the rounding to the activations' type, in float32.
    return [
        Part(
            adapter=place,
            down=mx.contiguous(part.down.astype(dtype)),
            up=mx.contiguous((part.up.astype(mx.float32) * part.factor).astype(dtype)),
        )
        for place, part in rows
    ]


def _merge(
    network: nn.Module,
    layers: Mapping[str, nn.Module],
    read: Sequence[_Read],
    adapters: Adapters,
) -> None:
    """Quantised layers are unpacked, changed and packed again, as `mlx_lm.fuse` does."""
    found = []
    for path, rows in _by_layer(read):
        parts = [(adapters.scales[place] * part.factor, part) for place, part in rows]
        if parts := [(weight, part) for weight, part in parts if weight != 0]:
            found.append((path, _merged(layers[path], parts)))
    if found:
        network.update_modules(tree_unflatten(found))


def _merged(layer: nn.Module, parts: Sequence[tuple[float, LowRank]]) -> nn.Module:
    """All of them at once, as one adapter of their summed rank: packing loses a little."""
    down_axis, up_axis = parts[0][1].rank_axes
    wrapper = next(w for kinds, w in _WRAPPERS.items() if isinstance(layer, kinds))
    lora: Any = wrapper.from_base(layer, r=1, scale=1.0)
    lora.lora_a = mx.concatenate([p.down.astype(mx.float32) for _, p in parts], axis=down_axis)
    ups = [weight * part.up.astype(mx.float32) for weight, part in parts]
    lora.lora_b = mx.concatenate(ups, axis=up_axis)
    return cast(nn.Module, lora.fuse())


_WRAPPERS: dict[tuple[type, ...], Any] = {
    LINEAR: LoRALinear,
    EXPERTS: LoRASwitchLinear,
    TABLES: LoRAEmbedding,
}


def _by_layer(read: Sequence[_Read]) -> Iterator[tuple[str, list[tuple[int, LowRank]]]]:
    """Each changed layer with the adapters' places and their parts in it."""
    found: dict[str, list[tuple[int, LowRank]]] = {}
    for place, adapter in enumerate(read):
        for part in adapter.parts:
            found.setdefault(part.layer, []).append((place, part))
    yield from found.items()


def _activation_dtype(network: nn.Module) -> mx.Dtype:
    """The type most of the network's floating numbers have: a few models keep routers and norms
    in float32, and packed weights are no floats at all."""
    sizes: Counter[mx.Dtype] = Counter()
    for _, array in cast(list[tuple[str, mx.array]], tree_flatten(network.parameters())):
        if mx.issubdtype(array.dtype, mx.floating):
            sizes[array.dtype] += array.size
    return sizes.most_common(1)[0][0]
