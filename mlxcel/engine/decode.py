"""The decode step: one token for every row, with one step always in flight.

Step n+1 is started from the unread tokens of step n, so building its graph overlaps with the
device. A row whose token turns out to be EOS has then taken part in one step too many; that
token is dropped when it is read. Rows that will reach their limit are known beforehand and are
left out. (On a CPU `async_eval` returns only when the step is nearly done. Sending the tokens of
step n first and submitting after that was tried: 7 % slower, since the tail of one step no
longer overlaps with the graph of the next.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import mlx.core as mx
import mlx.nn as nn

from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.history import History
from mlxcel.engine.sequence import Sequence


@dataclass(slots=True)
class _Flight:
    """A dispatched step: tokens `[rows]`, not read yet, and whose they are."""

    tokens: mx.array
    rows: list[Sequence]


class Decoder:
    """Owns the rows that decode. Place i of the KV batch belongs to `rows[i]`."""

    def __init__(self, network: nn.Module, kv: KVBatch) -> None:
        self._network = network
        self._kv = kv
        self.rows: list[Sequence] = []
        self._flight: _Flight | None = None
        self._heads: dict[str, int] = {}
        self._history = History()
        self._sampler: BatchSampler | None = None

    @property
    def has_work(self) -> bool:
        """Rows decode, or the last token of one that has left is in flight."""
        return bool(self.rows) or self._flight is not None

    @property
    def kv_bytes(self) -> int:
        return self._kv.nbytes

    def join(self, sequence: Sequence, token: int) -> None:
        """A prefilled row, whose first token `token` has been read, decodes from now on."""
        self._kv.join(sequence.kv)
        sequence.kv = []
        sequence.started = 1
        width = sequence.submit.sampling.history_width
        self._history.join([*sequence.prompt[-width:], token] if width else [], width)
        self.rows.append(sequence)
        self._heads[sequence.id] = token
        self._sampler = None

    def leave(self, sequence: Sequence) -> None:
        """Free the row's place now. Unknown rows are ignored."""
        sequence.is_done = True
        if sequence in self.rows:
            self._vacate(sequence)

    def step(self) -> Iterator[tuple[Sequence, int]]:
        """Start the next step, then yield the tokens of the one before, row by row."""
        landed = self._flight
        self._retire()
        self._flight = self._dispatch(landed) if self.rows else None
        if landed is None:
            return
        tokens = cast(list[int], landed.tokens.tolist())
        for sequence, token in zip(landed.rows, tokens, strict=True):
            if not sequence.is_done:
                yield sequence, token

    def clear(self) -> list[Sequence]:
        """Drop everything, since after a failed step the state cannot be trusted; returns the
        rows that had not ended."""
        flying = self._flight.rows if self._flight else []
        lost = [*self.rows, *(row for row in flying if row not in self.rows and not row.is_done)]
        for sequence in lost:
            self.leave(sequence)
        self._flight = None
        return lost

    def check(self) -> None:
        assert len(self.rows) == len(self._kv) == self._history.tokens.shape[0]
        self._kv.check()

    def _vacate(self, sequence: Sequence) -> None:
        place = self.rows.index(sequence)
        self._kv.leave(place)
        self._history.leave(place)
        last = self.rows.pop()
        if last is not sequence:
            self.rows[place] = last
        self._heads.pop(sequence.id, None)
        self._sampler = None

    def _retire(self) -> None:
        """Rows whose last token is in flight need no further step."""
        for sequence in [row for row in self.rows if row.started >= row.limit]:
            self._vacate(sequence)

    def _dispatch(self, landed: _Flight | None) -> _Flight:
        inputs = self._inputs(landed)
        self._kv.begin()
        logits = self._network(inputs[:, None], cache=self._kv.layers)[:, -1]
        self._kv.advance()
        if self._sampler is None:
            params = [row.submit.sampling for row in self.rows]
            self._sampler = BatchSampler(params, logits.shape[-1])
        positions = [row.started for row in self.rows]
        tokens = self._sampler(logits, positions, self._history.tokens)
        self._history.push(tokens)
        # The KV written in this step is evaluated with the tokens that depend on it.
        mx.async_eval(tokens, self._history.tokens)
        for row in self.rows:
            row.started += 1
        return _Flight(tokens, list(self.rows))

    def _inputs(self, landed: _Flight | None) -> mx.array:
        """The last token of every row: unread ones from the flight, read ones from the host."""
        heads, self._heads = self._heads, {}
        if landed is None:
            return mx.array([heads[row.id] for row in self.rows])
        if not heads and landed.rows == self.rows:
            return landed.tokens
        places = {row.id: i for i, row in enumerate(landed.rows)}
        width = len(landed.rows)
        read = [row.id for row in self.rows if row.id in heads]
        for i, name in enumerate(read):
            places[name] = width + i
        pool = landed.tokens
        if read:
            pool = mx.concatenate(
                [pool, mx.array([heads[name] for name in read], dtype=pool.dtype)]
            )
        return pool[mx.array([places[row.id] for row in self.rows])]
