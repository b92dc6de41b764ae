"""The smallest set of leading tokens that holds a given mass: what top-k, typical and top-p share.

Narrow rows are sorted. Over a whole vocabulary a sort costs more than everything else (76 ms for
16 x 49152 on a CPU), so there the border is found by halving the range of keys; nothing depends
on the data but numbers, so the device is never waited for.
"""

import mlx.core as mx

from mlxcel.engine.sampling.rowwise import total

SORTED = 2048
"""Rows up to this width are sorted."""
HALVINGS = 20
"""Of a range of about 15 nats they leave 1e-5; keys that are nearer
to each other than that count as tied."""


def foremost(keys: mx.array, mass: mx.array, target: mx.array, least: mx.array) -> mx.array:
    """`mass` with the rest set to 0.

    `keys` float32 `[rows, width]`, at most 0, the largest is the first to stay; `mass` the same
    shape, not negative; `target` `[rows, 1]`, more than 0, infinite: everything stays. Ties go
    by place. `least` `[rows, 1]`: keys from there on hold the target.
    """
    if keys.shape[-1] <= SORTED:
        return _by_sorting(keys, mass, target)
    return _by_halving(keys, mass, target, least)


def _by_sorting(keys: mx.array, mass: mx.array, target: mx.array) -> mx.array:
    order = mx.argsort(-keys, axis=-1)
    ranked = mx.take_along_axis(mass, order, axis=-1)
    kept = mx.where(mx.cumsum(ranked, axis=-1) - ranked < target, ranked, 0.0)
    return mx.put_along_axis(mx.zeros_like(mass), order, kept, axis=-1)


def _by_halving(keys: mx.array, mass: mx.array, target: mx.array, least: mx.array) -> mx.array:
    low, high = least - 1e-3, mx.zeros_like(least)
    for _ in range(HALVINGS):
        middle = (low + high) * 0.5
        is_enough = total(_beyond(keys, middle, mass)) >= target
        low = mx.where(is_enough, middle, low)
        high = mx.where(is_enough, high, middle)
    low = mx.where(target == mx.inf, -mx.inf, low)
    sure = _beyond(keys, high, mass)
    border = _beyond(keys, low, mass) - sure
    before = mx.cumsum(border, axis=-1) - border
    return sure + mx.where(before < target - total(sure), border, 0.0)


def _beyond(keys: mx.array, bound: mx.array, mass: mx.array) -> mx.array:
    """The mass where the key is above the bound, else 0: the sign bit of the difference, spread
    over the word, is the mask (on a CPU half the time of a comparison and a choice)."""
    mask = (bound - keys).view(mx.int32) >> 31
    return (mask & mass.view(mx.int32)).view(mx.float32)
