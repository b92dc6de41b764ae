"""Prompts into KV and rows that decode, on a bare network: what the tick does, without a tick.

As in the engine, the last token of a prompt stays out of its KV: it is the row's first step.
"""

import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.kv.choose import row_caches
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.prefilled import Prefilled

Logits = np.ndarray[Any, np.dtype[np.float32]]


def text(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(f"{length} {seed}")
    return [rng.randrange(256) for _ in range(length)]


def prefilled(network: nn.Module, tokens: list[int], *, chunk: int = 0, cap: int = 0) -> Prefilled:
    """All tokens but the last, in chunks."""
    caches = row_caches(network, KVPlan(cap=cap))
    head = tokens[:-1]
    step = chunk or len(head)
    for start in range(0, len(head), step):
        network(mx.array([head[start : start + step]]), cache=caches)
        mx.eval([cache.state for cache in caches])
    return Prefilled(caches, (len(head),))


def cohort(network: nn.Module, prompts: list[list[int]], *, cap: int = 0) -> Prefilled:
    """All tokens but the last of several prompts, padded on the right, in one forward."""
    caches = row_caches(network, KVPlan(cap=cap))
    longest = max(map(len, prompts)) - 1
    rows = [[*prompt[:-1], *[0] * (longest + 1 - len(prompt))] for prompt in prompts]
    network(mx.array(rows), cache=caches)
    mx.eval([cache.state for cache in caches])
    return Prefilled(caches, tuple(len(prompt) - 1 for prompt in prompts))


def step(network: nn.Module, kv: KVBatch, tokens: list[int]) -> Logits:
    """One decode step of all rows: `[rows, vocab]`."""
    kv.begin()
    logits = network(mx.array(tokens)[:, None], cache=kv.layers)[:, -1]
    kv.advance()
    mx.eval(logits)
    kv.check()
    return np.array(logits)


class _Everything:
    """No cache at all: one forward over all tokens, under a mask that is given."""

    def __init__(self, mask: mx.array) -> None:
        self.offset = 0
        self._mask = mask

    def make_mask(self, n: int, **_: Any) -> mx.array:
        return self._mask

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values


def plain(network: nn.Module, tokens: list[int], *, cap: int = 0) -> Logits:
    """The logits after each token, `[tokens, vocab]`, where each sees the newest `cap` tokens
    up to itself (0: all), at their true positions."""
    age = np.arange(len(tokens))[:, None] - np.arange(len(tokens))[None]
    mask = (age >= 0) & (age < (cap or len(tokens)))
    cache = _Everything(mx.array(mask))
    return np.array(network(mx.array([tokens]), cache=[cache] * len(network.layers))[0])


def assert_near(got: Logits, wanted: Logits) -> None:
    np.testing.assert_allclose(got, wanted, atol=2e-4, rtol=1e-4)
