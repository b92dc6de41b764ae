"""Sums, maxima and exponentials over the vocabulary, in the shapes a backend is quick at.

Measured on a CPU with MLX 0.32, 16 rows x 49152: `exp` 12 ms (scalar) against 3.5 for the
polynomial; `sum` over the last axis 0.67 ms against 0.17 in two steps.
"""

from collections.abc import Sequence

import mlx.core as mx

LANES = 32
"""The width of whole-vocabulary arrays is a multiple of it (`padded`)."""
_LOG2_E = 1.4426950408889634
_ROUNDING = 1.5 * 2.0**23
"""Added and taken away again, it leaves a float32 rounded to a whole number."""
_POWER_OF_2 = (
    1.339887440266574e-3,
    9.618437357674640e-3,
    5.550332471162809e-2,
    2.402264791363012e-1,
    6.931472028550421e-1,
    1.0,
)
"""2**f on [-0.5, 0.5] after the first coefficient (Cephes, exp2f)."""


def padded(values: mx.array, filler: float) -> mx.array:
    """`[rows, vocab]`, widened to a multiple of `LANES`."""
    missing = -values.shape[-1] % LANES
    if missing == 0:
        return values
    return mx.pad(values, [(0, 0), (0, missing)], constant_values=filler)


def total(values: mx.array) -> mx.array:
    """Sum of each row: `[rows, 1]`."""
    return mx.sum(mx.sum(_folded(values), axis=1), axis=-1, keepdims=True)


def peak(values: mx.array) -> mx.array:
    """Largest of each row: `[rows, 1]`."""
    return mx.max(mx.max(_folded(values), axis=1), axis=-1, keepdims=True)


def exponential(values: mx.array) -> mx.array:
    """e**x for x <= 0, relative error under 1e-5; 0 where that is below the smallest float32."""
    if mx.default_device().type == mx.gpu:
        return mx.exp(values)
    scaled = mx.maximum(values * _LOG2_E, -127.0)
    whole = (scaled + _ROUNDING) - _ROUNDING
    part = scaled - whole
    power = 1.535336188319500e-4 * part + _POWER_OF_2[0]
    for coefficient in _POWER_OF_2[1:]:
        power = power * part + coefficient
    return power * ((whole.astype(mx.int32) + 127) << 23).view(mx.float32)


def column(values: Sequence[float]) -> mx.array:
    """One float32 a row: `[rows, 1]`."""
    return mx.array(list(values), dtype=mx.float32)[:, None]


def at(values: mx.array, places: mx.array) -> mx.array:
    """What stands at one place of each row: `[rows, 1]` -> `[rows, 1]`."""
    return mx.take_along_axis(values, places, axis=-1)


def _folded(values: mx.array) -> mx.array:
    rows, width = values.shape
    lanes = LANES if width % LANES == 0 else 1
    return values.reshape(rows, lanes, width // lanes)
