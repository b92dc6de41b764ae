"""Counters of the language bias: how often it was at work, and what it kept from being said."""

from collections.abc import Callable, Sequence
from typing import cast
from weakref import WeakKeyDictionary

import mlx.core as mx
import numpy as np

from mlxcel.engine.report import Report
from mlxcel.engine.sequence import Sequence as Row

TokenBytes = Callable[[int], bytes]
PAIR = np.dtype([("token", "<i4"), ("value", "<f4")])
"""As `link.messages.pack_bias` writes it."""


class LanguageCounters:
    """`is_exact`: suppressed tokens are counted too, which costs an argmax a step."""

    def __init__(self, report: Report, token_bytes: TokenBytes, *, is_exact: bool) -> None:
        self._report = report
        self._token_bytes = token_bytes
        self._is_exact = is_exact
        self._of_rows: WeakKeyDictionary[Row, frozenset[int]] = WeakKeyDictionary()

    def watch(self, rows: Sequence[Row], logits: mx.array) -> mx.array | None:
        """Counts a step; returns what each row would have said most likely, where it counts."""
        if not any(row.sampling.wide_bias for row in rows):
            return None
        self._report.language_steps += 1
        return mx.argmax(logits, axis=-1) if self._is_exact else None

    def _banned(self, row: Row) -> frozenset[int]:
        """Kept by row: to find a bias of 200,000 bytes in a cache is to compare it."""
        if row not in self._of_rows:
            self._of_rows[row] = _read_banned(row.sampling.wide_bias)
        return self._of_rows[row]

    def read_runs(self, rows: Sequence[Row], logits: mx.array, lengths: Sequence[int]) -> None:
        """As many steps more as tokens came true. `logits` `[rows, span, vocab]`."""
        if not any(row.sampling.wide_bias for row in rows):
            return
        for n in range(1, 1 + max(lengths)):
            places = [place for place, length in enumerate(lengths) if length >= n]
            there = [rows[place] for place in places]
            self.read(there, self.watch(there, logits[mx.array(places), n]))

    def read(self, rows: Sequence[Row], likeliest: mx.array | None) -> None:
        if likeliest is None:
            return
        tokens = cast(list[int], likeliest.tolist())
        for row, token in zip(rows, tokens, strict=True):
            if token in self._banned(row):
                self._report.language_suppressed += 1
                self._report.language_fragments += not _is_whole(self._token_bytes(token))


def _read_banned(bias: bytes) -> frozenset[int]:
    pairs = np.frombuffer(bias, dtype=PAIR)
    return frozenset(pairs["token"][np.isneginf(pairs["value"])].tolist())


def _is_whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
