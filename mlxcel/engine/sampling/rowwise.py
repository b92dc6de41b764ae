"""Sums, maxima and exponentials over the vocabulary, in the shapes a backend is quick at.

On a GPU the number of operations is what costs, so there a sum is one, and a chain of arithmetic
is compiled into one (`fused`). Measured on a CPU with MLX 0.32, 16 rows x 49152: `exp` 12 ms
(scalar) against 3.5 for the polynomial; `sum` over the last axis 0.67 ms against 0.17 in two
steps.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import mlx.core as mx

P = ParamSpec("P")
T = TypeVar("T")

LANES = 32
"""The width of whole-vocabulary arrays is a multiple of it (`padded`)."""
NARROW = 1024
"""Rows up to this width are summed in one step."""
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


def on_gpu() -> bool:
    return mx.default_device().type == mx.gpu


def fused(function: Callable[P, T]) -> Callable[P, T]:
    """On a GPU the function compiled, arithmetic in one kernel; on a CPU the function as it is,
    since its vector loops are quicker than what MLX has a C++ compiler make of it."""
    compiled: Callable[P, T] = mx.compile(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return (compiled if on_gpu() else function)(*args, **kwargs)

    return call


def padded(values: mx.array, filler: float) -> mx.array:
    """`[rows, vocab]`, widened to a multiple of `LANES`."""
    missing = -values.shape[-1] % LANES
    if missing == 0:
        return values
    return mx.pad(values, [(0, 0), (0, missing)], constant_values=filler)


def total(values: mx.array) -> mx.array:
    """Sum of each row: `[rows, 1]`."""
    if _is_whole(values):
        return mx.sum(values, axis=-1, keepdims=True)
    return mx.sum(mx.sum(_folded(values), axis=1), axis=-1, keepdims=True)


def peak(values: mx.array) -> mx.array:
    """Largest of each row: `[rows, 1]`."""
    if _is_whole(values):
        return mx.max(values, axis=-1, keepdims=True)
    return mx.max(mx.max(_folded(values), axis=1), axis=-1, keepdims=True)


def exponential(values: mx.array) -> mx.array:
    """e**x for x <= 0, relative error under 1e-5; 0 where that is below the smallest float32."""
    if on_gpu():
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


def _is_whole(values: mx.array) -> bool:
    """Whether one step does it."""
    width = values.shape[-1]
    return width <= NARROW or width % LANES != 0 or on_gpu()


def _folded(values: mx.array) -> mx.array:
    rows, width = values.shape
    return values.reshape(rows, LANES, width // LANES)
