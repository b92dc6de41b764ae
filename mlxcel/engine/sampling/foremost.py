"""The smallest set of leading tokens that holds a given mass: what top-k, typical and top-p share.

Narrow rows are sorted. Over a whole vocabulary a sort costs more than everything else (76 ms for
16 x 49152 on a CPU), so there the border is found by halving the range of keys; nothing depends
on the data but numbers, so the device is never waited for.
"""

import mlx.core as mx

from mlxcel.engine.sampling.rowwise import fused, on_gpu, total

SORTED = 2048
"""Rows up to this width are sorted."""
HALVINGS = 21
"""Of a range of about 15 nats they leave 1e-5; keys that are nearer to each other than that count
as tied. (The borders are exact up to 24.)"""
HALVES = [0.5 ** (i + 1) for i in range(HALVINGS)]


def foremost(
    keys: mx.array, mass: mx.array, target: mx.array, least: mx.array | None = None
) -> mx.array:
    """`mass` with the rest set to 0.

    `keys` float32 `[rows, width]`, at most 0, the largest is the first to stay; `mass` the same
    shape, not negative; `target` `[rows, 1]`, more than 0, infinite: everything stays. Ties go
    by place. `least` `[rows, 1]`: keys from there on hold the target; only rows that are too wide
    to be sorted need it.
    """
    if keys.shape[-1] <= SORTED:
        return _by_sorting(keys, mass, target)
    if least is None:
        raise ValueError(f"rows of {keys.shape[-1]} keys need a least: over {SORTED}")
    return _by_halving(keys, mass, target, least)


@fused
def leading(mass: mx.array, share: mx.array) -> mx.array:
    """The same where the first to stay stand first, and the target is a share of all the mass."""
    upto = mx.cumsum(mass, axis=-1)
    return mx.where(upto - mass < share * upto[:, -1:], mass, 0.0)


@fused
def _by_sorting(keys: mx.array, mass: mx.array, target: mx.array) -> mx.array:
    order = mx.argsort(-keys, axis=-1)
    ranked = mx.take_along_axis(mass, order, axis=-1)
    kept = mx.where(mx.cumsum(ranked, axis=-1) - ranked < target, ranked, 0.0)
    return mx.put_along_axis(mx.zeros_like(mass), order, kept, axis=-1)


@fused
def _by_halving(keys: mx.array, mass: mx.array, target: mx.array, least: mx.array) -> mx.array:
    # From a power of 2, so that all sums of the steps are exact, the highest 0.
    steps = _power_above(1e-3 - least) * mx.array([HALVES])
    low = -2 * steps[:, :1]
    for i in range(HALVINGS):
        step = steps[:, i : i + 1]
        is_enough = total(_beyond(keys, low + step, mass)) >= target
        low = low + mx.where(is_enough, step, 0.0)
    high = low + steps[:, -1:]
    low = mx.where(target == mx.inf, -mx.inf, low)
    sure = _beyond(keys, high, mass)
    border = _beyond(keys, low, mass) - sure
    before = mx.cumsum(border, axis=-1) - border
    return sure + mx.where(before < target - total(sure), border, 0.0)


def _power_above(values: mx.array) -> mx.array:
    """The next power of 2 above each float32, which is more than 0: its exponent, one more."""
    return ((values.view(mx.int32) & 0x7F800000) + 0x00800000).view(mx.float32)


def _beyond(keys: mx.array, bound: mx.array, mass: mx.array) -> mx.array:
    """The mass where the key is above the bound, else 0. On a CPU the sign bit of the difference,
    spread over the word, is the mask: half the time of a comparison and a choice."""
    if on_gpu():
        return mx.where(keys > bound, mass, 0.0)
    mask = (bound - keys).view(mx.int32) >> 31
    return (mask & mass.view(mx.int32)).view(mx.float32)
