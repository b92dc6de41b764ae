"""Whether one step over several tokens gives the very logits of steps over each (speculative, 5).

Kernels for several rows add in another order than those for one: where that shows, a text with
rounds may leave the plain one at a near tie.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from mlxcel.engine.kv.batch import KVRewinding
from mlxcel.engine.kv.prefilled import Prefilled

LENGTHS = (5, 24, 67)
"""Tokens read before the step, one for each input."""
STRIDES = (7, 11, 29)
MODULUS = 251
"""Below any vocabulary."""
BITS = {2: mx.uint16, 4: mx.uint32}


def differs(
    network: nn.Module,
    width: int,
    *,
    fresh: Callable[[], list[Any]] | None = None,
    kv: KVRewinding | None = None,
) -> str | None:
    """How, or None: `width` tokens at once and one by one, byte for byte.

    `fresh`: makes the caches that texts are read into; None: those of the network. `kv`: an empty
    batch that rows of such caches decode in, which is tried out as well, and left empty.
    """
    ground = _Ground(network, fresh or partial(make_prompt_cache, network), kv)
    for place, (length, stride) in enumerate(zip(LENGTHS, STRIDES, strict=True), start=1):
        tokens = [(3 + stride * n) % MODULUS for n in range(length + width)]
        before, after = tokens[:length], tokens[length:]
        wide = ground.logits(before, [after])
        narrow = ground.logits(before, [[token] for token in after])
        if (how := _apart(wide, narrow)) is not None:
            return f"input {place} of {len(LENGTHS)} ({length} tokens, then {width}): {how}"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Ground:
    network: nn.Module
    fresh: Callable[[], list[Any]]
    kv: KVRewinding | None

    def logits(self, before: Sequence[int], steps: Sequence[Sequence[int]]) -> mx.array:
        """Of all steps, `[tokens, vocab]`."""
        caches = self.fresh()
        self.network(mx.array([before]), cache=caches)
        if self.kv is None:
            return _joined([self.network(mx.array([step]), cache=caches) for step in steps])
        self.kv.join(Prefilled(caches, (len(before),)))
        try:
            return _joined([self._step(self.kv, step) for step in steps])
        finally:
            self.kv.leave(0)

    def _step(self, kv: KVRewinding, tokens: Sequence[int]) -> mx.array:
        kv.begin(len(tokens))
        made: mx.array = self.network(mx.array([tokens]), cache=kv.layers)
        kv.advance([len(tokens)])
        return made


def _joined(logits: list[mx.array]) -> mx.array:
    joined = mx.concatenate(logits, axis=1)[0]
    mx.eval(joined)
    return joined


def _apart(wide: mx.array, narrow: mx.array) -> str | None:
    unlike = _bits(wide) != _bits(narrow)
    count = cast(int, unlike.sum().item())
    if not count:
        return None
    first = cast(int, mx.argmax(unlike.any(axis=1)).item())
    most = mx.abs(wide.astype(mx.float32) - narrow.astype(mx.float32)).max().item()
    return (
        f"{count} of {unlike.size} logits differ, by {most:.3g} at most, the first of them at "
        f"token {first + 1}"
    )


def _bits(logits: mx.array) -> mx.array:
    """Equal as bytes, not as numbers: NaN is NaN, and -0 is not 0."""
    return logits.view(BITS[logits.dtype.size])
