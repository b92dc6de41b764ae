"""A linear layer with the low-rank parts of adapters beside it, scaled row by row."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

Scale = float | mx.array


@dataclass(slots=True)
class LiveScales:
    """One scale per adapter for the next forward: a number, or float32 `[rows, 1, 1]` where the
    rows differ. Mutable; owned by whoever calls the network, read by all its layers."""

    values: tuple[Scale, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Of the adapter in place `adapter`. Its factor is already in `up`."""

    adapter: int
    down: mx.array
    up: mx.array


class LoraLinear(nn.Module):
    """y = W x + sum_i s_i B_i A_i x. An adapter at scale 0 costs nothing and changes nothing."""

    def __init__(self, linear: nn.Module, parts: Sequence[Part], live: LiveScales) -> None:
        super().__init__()
        self.linear = linear
        self.down = [part.down for part in parts]
        self.up = [part.up for part in parts]
        self._adapters = tuple(part.adapter for part in parts)
        self._live = live

    def __call__(self, x: mx.array) -> mx.array:
        y = base = self["linear"](x)
        for place, down, up in zip(self._adapters, self["down"], self["up"], strict=True):
            scale = self._live.values[place]
            if not isinstance(scale, mx.array):
                if scale != 0:
                    y = mx.addmm(y, x @ down, up, alpha=scale)
            else:
                scaled = (x @ down) * _spread(scale, x)
                y = mx.addmm(y, scaled.astype(up.dtype), up)
        return y.astype(base.dtype)


def _spread(scale: mx.array, x: mx.array) -> mx.array:
    """`[rows, 1, 1]` to what multiplies `x`, which some models lay out as `[rows * n, in]`."""
    rows, places = scale.shape[0], x.shape[0]
    if places % rows:
        raise ValueError(f"scales of {rows} rows do not fit an input of shape {x.shape}")
    if places != rows:
        scale = mx.repeat(scale, places // rows, axis=0)
    return scale.reshape(places, *[1] * (x.ndim - 1))
