"""The scales of the adapters: those in force, those a request was taken with, and those of the
rows in the next forward.

Without adapters every call is a no-op and every snapshot is `()`.
"""

import logging
import math
from collections.abc import Sequence

import mlx.core as mx

from mlxcel.core.errors import BadField
from mlxcel.weights.lora.install import Adapters
from mlxcel.weights.lora.linear import Scale

log = logging.getLogger(__name__)

Wanted = tuple[tuple[int, float], ...]
"""Adapter ids and scales; adapters not named are at 0, unknown ids mean nothing."""
Snapshot = tuple[float, ...]
"""One scale per adapter."""


class LoraScales:
    """Mutable, owned by the tick."""

    def __init__(self, adapters: Adapters | None) -> None:
        self._adapters = adapters
        self.current: Snapshot = () if adapters is None else adapters.scales
        """Taken by requests that bring none of their own."""
        self._rows: list[Snapshot] | None = None

    def set(self, scales: Wanted) -> None:
        """From now on. Merged adapters stay as they are: the front refuses such a change."""
        wanted = self.of(scales)
        if self._is_fused and wanted != self.current:
            log.warning("adapter scales %s ignored: the adapters are merged (lora.fuse)", wanted)
            return
        self.current = wanted

    def of(self, request: Wanted | None) -> Snapshot:
        """What a request runs under, however the scales change later."""
        if request is None:
            return self.current
        named = dict(request)
        return tuple(named.get(place, 0.0) for place in range(len(self.current)))

    def check(self, request: Wanted | None) -> None:
        """Raises BadField for scales that no row could run under."""
        if request is None:
            return
        for place, scale in request:
            if not math.isfinite(scale):
                raise BadField("lora", f"the scale of adapter {place} is not a finite number")
        if self._is_fused and self.of(request) != self.current:
            in_force = [{"id": n, "scale": scale} for n, scale in enumerate(self.current)]
            raise BadField(
                "lora",
                "the adapters are merged into the weights (lora.fuse): only the scales in force "
                f"are accepted: {in_force}",
            )

    def use(self, rows: Sequence[Snapshot]) -> None:
        """The next forward has these rows, in this order."""
        if self._adapters is None or self._is_fused or not rows or self._rows == rows:
            return
        self._rows = list(rows)
        self._adapters.live.values = tuple(_column(scales) for scales in zip(*rows, strict=True))

    @property
    def _is_fused(self) -> bool:
        return self._adapters is not None and self._adapters.is_fused


def _column(scales: tuple[float, ...]) -> Scale:
    """Of one adapter: a number where all rows agree, else `[rows, 1, 1]`."""
    first = scales[0]
    if all(scale == first for scale in scales):
        return first
    return mx.array(scales, dtype=mx.float32).reshape(-1, 1, 1)
