"""Mirostat: keeps the surprise of the drawn tokens near a target (Basu et al., 2021).

Takes the place of penalties and truncation; temperature comes first. With p after temperature
and mu the row's running bound (bits), version 2 keeps the tokens with -log2 p <= mu, at least the
likeliest. Version 1 takes p for Zipf's law, estimates its exponent s from the 100 likeliest,

    s = sum(t * b) / sum(t * t),  t[i] = ln((i + 2) / (i + 1)),  b[i] = ln(p[i] / p[i + 1])

and keeps the k likeliest, k = (e * 2**mu / (1 - vocab**-e)) ** (1 / s) with e = s - 1. After a
draw, mu -= rate * (-log2 p[token] - target), with p before the cut, as in the authors' code.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxcel.core.sampling import Mirostat, SamplingParams
from mlxcel.engine.sampling.candidates import DEEPEST
from mlxcel.engine.sampling.head import likeliest
from mlxcel.engine.sampling.rowwise import at, column, total
from mlxcel.engine.sampling.truncate import counted

ESTIMATED_FROM = 100
LEAST_EXPONENT = 1e-3
_STEPS = np.log(1 + 1 / np.arange(1, ESTIMATED_FROM, dtype=np.float32))


def is_mirostat(row: SamplingParams) -> bool:
    """A greedy row draws nothing that could surprise."""
    return row.mirostat is not None and not row.is_greedy


class Bound:
    """Of a list of rows, all of them with mirostat."""

    def __init__(self, rows: Sequence[SamplingParams], vocab: int) -> None:
        rules = [row.mirostat for row in rows if row.mirostat is not None]
        self._vocab = vocab
        self._rate = column([rule.rate for rule in rules])
        self._target = column([rule.target for rule in rules])
        self._is_first = mx.array([[rule.version == 1] for rule in rules])
        self._has_first = any(rule.version == 1 for rule in rules)
        self._has_second = any(rule.version != 1 for rule in rules)

    def kept(self, scores: mx.array, weights: mx.array, state: mx.array) -> mx.array:
        """The weights of what may be drawn. `scores` are logits over temperature less the row's
        largest, `weights` their exponentials, `[rows, vocab]`."""
        mu = state[:, :1]
        bound = mx.minimum(total(weights) * mx.power(2.0, -mu), 1.0)
        if not self._has_first:
            return mx.where(weights >= bound, weights, 0.0)
        first = counted(mx.maximum(scores, DEEPEST), weights, self._count(scores, mu))
        if not self._has_second:
            return first
        second = mx.where(weights >= bound, weights, 0.0)
        return mx.where(self._is_first, first, second)

    def after(self, weights: mx.array, places: mx.array, state: mx.array) -> mx.array:
        """The next state: `places` `[rows, 1]` were drawn."""
        surprise = mx.log2(total(weights) / at(weights, places))
        mu = state[:, :1] - self._rate * (surprise - self._target)
        return mx.concatenate([mu, state[:, 1:]], axis=-1)

    def _count(self, scores: mx.array, mu: mx.array) -> mx.array:
        """Version 1: k, from 1 to the vocabulary."""
        s = mx.maximum(_zipf_exponent(scores), LEAST_EXPONENT)
        e = mx.where(mx.abs(s - 1) < LEAST_EXPONENT, LEAST_EXPONENT, s - 1)
        ratio = e * mx.power(2.0, mu) / (1 - mx.power(float(self._vocab), -e))
        return mx.floor(mx.clip(mx.power(ratio, 1 / s), 1, self._vocab))


def initial_bound(rule: Mirostat) -> float:
    return 2 * rule.target


def _zipf_exponent(scores: mx.array) -> mx.array:
    head = likeliest(scores, ESTIMATED_FROM).logits
    steps = mx.array(_STEPS[: head.shape[-1] - 1])[None]
    is_there = head[:, 1:] > -mx.inf
    falls = mx.where(is_there, head[:, :-1] - head[:, 1:], 0.0)
    square = mx.sum(mx.where(is_there, mx.square(steps), 0.0), axis=-1, keepdims=True)
    return mx.sum(steps * falls, axis=-1, keepdims=True) / mx.maximum(square, LEAST_EXPONENT)
