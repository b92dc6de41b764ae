"""Masks of many rows: computed together, and as one array for the sampler."""

import time
from collections.abc import Sequence
from functools import cache

import mlx.core as mx
import numpy as np
from llguidance import LLExecutor

from mlxcel.engine.constraint.matcher import SLOW_S, Matcher, Words

WORTHWHILE = 8
"""Rows; fewer masks of some 20 us each are computed sooner one by one (2 cores, 49152 tokens)."""


def fill(matchers: Sequence[Matcher]) -> None:
    """Computes `allowed` of several matchers of one model on all cores; what one of them raises
    is raised by its own `allowed`."""
    waiting = [matcher for matcher in matchers if not matcher.is_filled]
    if len(waiting) < WORTHWHILE:
        return
    first = waiting[0].empty_row()
    rows = np.zeros((len(waiting), first.size), np.int32)
    jobs = [(matcher.grammar, place) for place, matcher in enumerate(waiting)]
    began_s = time.perf_counter()
    _executor().unsafe_compute_mask_ptr(jobs, rows.ctypes.data, first.nbytes, len(waiting))
    if time.perf_counter() - began_s > SLOW_S:
        return  # one of them is slow, none knows which: each is asked for by itself
    for matcher, row in zip(waiting, rows, strict=True):
        matcher.fill(row)


def bits(words: Sequence[Words | None], vocab: int) -> mx.array:
    """Boolean `[rows, vocab]`: the token may be drawn. None allows every token."""
    rows = np.full((len(words), -(-vocab // 32)), 0xFFFFFFFF, np.uint32)
    for place, row in enumerate(words):
        if row is not None:
            rows[place] = row
    shifts = mx.arange(32, dtype=mx.uint32)
    spread = (mx.array(rows)[..., None] >> shifts) & 1
    return spread.reshape(len(words), -1)[:, :vocab].astype(mx.bool_)


@cache
def _executor() -> LLExecutor:
    return LLExecutor()
