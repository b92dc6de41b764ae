"""Whether a loaded model attends to rows of unequal length through our own attention: tried out,
since its code is not ours."""

import logging
from typing import cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from mlxcel.engine.kv.attend import teach
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV

log = logging.getLogger(__name__)

LENGTHS = (3, 70)
TOLERANCE = 0.03
"""Of the largest logit: what 16-bit arithmetic in another order may differ by."""


def knows_ragged_rows(network: nn.Module) -> bool:
    """Teaches it, and compares a step with the same step under a mask."""
    if not teach(network):
        return False
    try:
        masked, own = (_logits(network, needs_no_mask=own) for own in (False, True))
        largest, apart = _largest(masked), _largest(masked - own)
    except (RuntimeError, ValueError, AssertionError) as why:
        log.warning("rows of unequal length keep a mask: %s", why)
        return False
    is_same = apart <= TOLERANCE * largest
    if not is_same:
        log.warning("rows of unequal length keep a mask: %g apart of %g", apart, largest)
    return is_same


def _logits(network: nn.Module, *, needs_no_mask: bool) -> mx.array:
    caches = [make_prompt_cache(network) for _ in LENGTHS]
    kv = RaggedKV(len(caches[0]), len(LENGTHS), needs_no_mask=needs_no_mask)
    for row, length in zip(caches, LENGTHS, strict=True):
        network(mx.arange(length)[None] % 97, cache=row)
        kv.join(Prefilled(row, (length,)))
    kv.begin()
    return network(mx.array([[1], [2]]), cache=kv.layers)[:, -1].astype(mx.float32)


def _largest(values: mx.array) -> float:
    return cast(float, mx.max(mx.abs(values)).item())
