"""The decode step: one token for every row, with one step in flight wherever that is possible.

Step n+1 is started from the unread tokens of step n, so building its graph overlaps with the
device. A row whose token turns out to be EOS has then taken part in one step too many; that
token is dropped when it is read. Rows that will reach their limit are known beforehand and are
left out. (On a CPU `async_eval` returns only when the step is nearly done. Sending the tokens of
step n first and submitting after that was tried: 7 % slower, since the tail of one step no
longer overlaps with the graph of the next.)

No step runs ahead of a row's first token, which somebody waits for, nor of rows whose next draw
depends on what was said (a constraint, a thinking budget): for those the mask of a step is made
while its forward runs.

Where rows propose what they may say next, a step is a round: every row is given its proposals as
well (others: padding), draws at each of those places what it would have drawn there, and keeps what
it has foreseen (`draft`).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import mlx.core as mx
import mlx.nn as nn

from mlxcel.engine.constraint.masks import bits, fill
from mlxcel.engine.draft.rejection import in_view_first
from mlxcel.engine.draft.rounds import NO_RUN, Run, as_inputs, draw_later, runs_of
from mlxcel.engine.draft.speculation import Speculation
from mlxcel.engine.kv.batch import KVBatch, KVReplaying, KVRewinding
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.language import LanguageCounters
from mlxcel.engine.lora import LoraScales
from mlxcel.engine.report import Report
from mlxcel.engine.sampling.batch import BatchSampler, Drawn
from mlxcel.engine.sampling.history import History
from mlxcel.engine.sampling.rejection import Proposed
from mlxcel.engine.sampling.state import RowState, initial_state
from mlxcel.engine.scores import read_scores
from mlxcel.engine.sequence import Sequence
from mlxcel.link.messages import TokenScores

NOT_FORCED = -1


@dataclass(slots=True)
class _Flight:
    """A dispatched step, not read yet, and whose it is."""

    drawn: Drawn
    rows: list[Sequence]
    closing: list[bool]
    """Whether a row's token belongs to the end of a think block that its budget forces."""
    has_first: bool
    """It holds some row's first token."""
    likeliest: mx.array | None
    """`[rows]`: what a language bias may have suppressed."""


@dataclass(frozen=True, slots=True)
class Said:
    """One token of a row. `token` -1: nothing could be drawn."""

    row: Sequence
    token: int
    scores: TokenScores | None
    is_forced: bool


Keep = Callable[[Sequence, KVBatch, int], None]
"""Told of a row that is about to leave its place in a batch, while what it has read stands
there."""


class Decoder:
    """Owns the rows that decode. Place i of the KV batch belongs to `rows[i]`."""

    def __init__(
        self,
        network: nn.Module,
        kv: KVBatch,
        *,
        lora: LoraScales,
        report: Report,
        language: LanguageCounters,
        looks_ahead: bool,
        clear_interval: int,
        keep: Keep,
        speculation: Speculation | None = None,
    ) -> None:
        """`clear_interval` is the steps between two clearings of MLX's cache; 0: never.
        `speculation` only with a `kv` that can rewind."""
        self._network = network
        self._kv = kv
        self._keep = keep
        self._lora = lora
        self._report = report
        self._language = language
        self._looks_ahead = looks_ahead
        self._clear_interval = clear_interval
        self.rows: list[Sequence] = []
        self._flight: _Flight | None = None
        self._reading: _Flight | None = None
        self._history = History()
        self._state = RowState()
        self._sampler: BatchSampler | None = None
        self._speculation = speculation

    @property
    def has_work(self) -> bool:
        """Rows decode, or the last token of one that has left is in flight."""
        return bool(self.rows) or self._flight is not None

    @property
    def is_flying(self) -> bool:
        return self._flight is not None

    @property
    def kv_bytes(self) -> int:
        return self._kv.nbytes

    def join(self, row: Sequence, kv: Prefilled, index: int) -> None:
        """A row whose tokens but the last are in row `index` of `kv` decodes from now on."""
        self._kv.join(kv, index)
        row.started = len(row.output)
        width = row.sampling.history_width
        self._history.join(row.tokens[-width:] if width else [], width)
        self._state.join(row.sampler_state or initial_state(row.sampling))
        self.rows.append(row)
        self._sampler = None
        if self._speculation is not None:
            self._speculation.enter(row)

    def keep(self, row: Sequence) -> None:
        """Have kept what a row has read. Unknown rows are ignored."""
        if row in self.rows:
            self._keep(row, self._kv, self.rows.index(row))

    def leave(self, row: Sequence) -> None:
        """Free the row's place for good. Unknown rows are ignored."""
        row.is_done = True
        if row in self.rows:
            self._vacate(row)

    def evict(self, row: Sequence) -> None:
        """Free the row's place; it will come back. Only while no step is in flight (`settle`)."""
        assert self._flight is None, "its next token is in flight"
        row.sampler_state = self._state.row(self.rows.index(row))
        self._vacate(row)

    def step(self) -> Iterator[Said]:
        """Read what is in flight and start the next step, in the order that suits the rows."""
        began_s, was_flying = time.perf_counter(), self._flight is not None
        if self._speculation is not None:
            if was_flying and self._speculation.wants_all_read(self.rows):
                yield from self.settle()
                began_s = time.perf_counter()
            proposed = self._speculation.ask(self.rows, self._kv)
            if proposed and self._flight is not None:
                # Without the token in flight: what is foreseen after it counts.
                yield from self.settle()
                began_s = time.perf_counter()
                proposed = self._speculation.ask(self.rows, self._kv)
            if proposed:
                yield from self._round(self._speculation, proposed, began_s)
                return
            self._speculation.passed(self.rows, self._kv)
        if self._must_read_first():
            yield from self.settle()
        landed = self._flight
        self._retire()
        self._flight = self._dispatch(landed) if self.rows else None
        self._report.lookahead_steps += landed is not None and self._flight is not None
        yield from self._land(landed)
        if was_flying and self._speculation is not None:
            self._speculation.stepped((time.perf_counter() - began_s) * 1e3, len(self.rows))
        if self._flight is not None and self._flight.has_first:
            yield from self.settle()

    def settle(self) -> Iterator[Said]:
        """Read what is in flight and start nothing."""
        landed, self._flight = self._flight, None
        yield from self._land(landed)

    def clear(self) -> list[Sequence]:
        """Drop everything, since after a failed step the state cannot be trusted; returns the
        rows that had not ended."""
        # A row whose last token was in flight is in none of the places any more.
        flights = [flight for flight in (self._flight, self._reading) if flight is not None]
        flying = [row for flight in flights for row in flight.rows if not row.is_done]
        lost = list(dict.fromkeys([*self.rows, *flying]))
        for row in lost:
            self.leave(row)
        self._flight = self._reading = None
        return lost

    def check(self) -> None:
        assert len(self.rows) == len(self._kv) == self._history.tokens.shape[0]
        assert len(self.rows) == self._state.values.shape[0]
        self._kv.check()

    def _round(
        self, speculation: Speculation, proposed: dict[Sequence, list[int]], began_s: float
    ) -> Iterator[Said]:
        """Nothing is in flight, before or after."""
        rows = list(self.rows)
        guesses = [proposed.get(row, []) for row in rows]
        inputs = as_inputs(rows, guesses)
        logits = self._wide(inputs)
        positions = [row.started for row in rows]
        flight = self._choose(logits[:, 0], in_view_first(rows, guesses))
        later = draw_later(
            logits, rows, positions, guesses, history=self._history, state=self._state
        )
        runs = runs_of(flight.drawn.tokens, later, guesses, rows)
        self._keep_only(inputs, [1 + len(run.tokens) for run in runs])
        for place, (row, run) in enumerate(zip(rows, runs, strict=True)):
            row.started += len(run.tokens)
            self._history.extend(place, run.tokens)
            if run.state is not None:
                self._state.put(place, run.state)
        tried, kept = [len(guess) for guess in guesses], [len(run.tokens) for run in runs]
        speculation.took(rows, tried, kept)
        speculation.lasted((time.perf_counter() - began_s) * 1e3, rows, tried, kept)
        self._language.read_runs(rows, logits, kept)
        yield from self._land(flight, runs)

    def _wide(self, inputs: mx.array) -> mx.array:
        """A forward of which not all positions may count."""
        if self._kv.can_rewind:
            cast(KVRewinding, self._kv).begin(inputs.shape[1])
        else:
            cast(KVReplaying, self._kv).mark()
        return self._forward(inputs)

    def _keep_only(self, inputs: mx.array, kept: list[int]) -> None:
        """Of each row's positions the first few."""
        if self._kv.can_rewind:
            cast(KVRewinding, self._kv).advance(kept)
        elif kept[0] < inputs.shape[1]:
            cast(KVReplaying, self._kv).back()
            self._forward(inputs[:, : kept[0]])

    def _land(self, landed: _Flight | None, runs: list[Run] | None = None) -> Iterator[Said]:
        """`runs`: of each row, what it says after its token."""
        if landed is None:
            return
        self._reading = landed
        tokens = cast(list[int], landed.drawn.tokens.tolist())
        scores = read_scores(landed.drawn.scores, [row.request.submit for row in landed.rows])
        self._language.read(landed.rows, landed.likeliest)
        for place, row in enumerate(landed.rows):
            if not row.is_done:
                yield Said(row, tokens[place], scores[place], landed.closing[place])
            run = NO_RUN if runs is None else runs[place]
            for token, told in zip(run.tokens, run.scores, strict=True):
                if not row.is_done:
                    yield Said(row, token, told, is_forced=False)
        self._reading = None

    def _must_read_first(self) -> bool:
        if not self._looks_ahead or any(row.needs_tokens for row in self.rows):
            return True
        return self._speculation is not None and self._speculation.needs_tokens(self.rows)

    def _vacate(self, row: Sequence) -> None:
        place = self.rows.index(row)
        self._kv.leave(place)
        self._history.leave(place)
        self._state.leave(place)
        if self._speculation is not None:
            self._speculation.leave(row)
        last = self.rows.pop()
        if last is not row:
            self.rows[place] = last
        self._sampler = None

    def _retire(self) -> None:
        """Rows whose last token is in flight need no further step."""
        for row in [row for row in self.rows if row.started >= row.request.limit]:
            self.keep(row)
            self._vacate(row)

    def _dispatch(self, landed: _Flight | None) -> _Flight:
        inputs = self._inputs(landed)
        self._kv.begin()
        logits = self._forward(inputs[:, None])
        self._kv.advance()
        return self._choose(logits[:, -1])

    def _forward(self, inputs: mx.array) -> mx.array:
        """`inputs` int32 `[rows, span]` -> logits `[rows, span, vocab]`."""
        self._lora.use([row.request.lora for row in self.rows])
        return self._network(inputs, cache=self._kv.layers)

    def _choose(self, logits: mx.array, proposed: Proposed | None = None) -> _Flight:
        """The next token of every row, on its way; drawn in view of what is `proposed`."""
        likeliest = self._language.watch(self.rows, logits)
        forced = [NOT_FORCED] * len(self.rows)
        closing = [False] * len(self.rows)
        allowed = None
        if any(row.needs_tokens for row in self.rows):
            mx.async_eval(logits)  # it runs while the masks are made
            fill([w for row in self.rows if row.steering and (w := row.steering.waiting)])
            forced = [_forced(row) for row in self.rows]
            closing = [bool(row.steering and row.steering.is_forcing) for row in self.rows]
            allowed = self._allowed(logits.shape[-1])
        drawn = self._draw(logits, forced, allowed, proposed)
        has_first = any(row.started == 0 for row in self.rows)
        for row in self.rows:
            row.started += 1
        self._count()
        return _Flight(drawn, list(self.rows), closing, has_first, likeliest)

    def _count(self) -> None:
        self._report.stepped(len(self.rows))
        if self._clear_interval and self._report.decode_steps % self._clear_interval == 0:
            mx.clear_cache()

    def _draw(
        self,
        logits: mx.array,
        forced: list[int],
        allowed: mx.array | None,
        proposed: Proposed | None,
    ) -> Drawn:
        if self._sampler is None:
            submits = [row.request.submit for row in self.rows]
            self._sampler = BatchSampler(
                [row.sampling for row in self.rows],
                logits.shape[-1],
                top_logprobs=[submit.top_logprobs for submit in submits],
                post_sampling=[submit.is_post_sampling for submit in submits],
            )
        positions = [row.started for row in self.rows]
        fixed = mx.array(forced) if max(forced) > NOT_FORCED else None
        drawn = self._sampler(
            logits, positions, self._history.tokens, self._state.values, allowed, fixed, proposed
        )
        self._history.push(drawn.tokens)
        self._state.take(drawn.state)
        scores = [part for told in drawn.scores for part in (told.said, told.ids, told.values)]
        # The KV written in this step is evaluated with the tokens that depend on it.
        mx.async_eval(drawn.tokens, self._history.tokens, self._state.values, *scores)
        return drawn

    def _allowed(self, vocab: int) -> mx.array | None:
        words = [row.allowed() for row in self.rows]
        return None if all(word is None for word in words) else bits(words, vocab)

    def _inputs(self, landed: _Flight | None) -> mx.array:
        """The last token of every row: unread ones from the flight, read ones from the host."""
        if landed is None:
            return mx.array([row.last_token for row in self.rows], dtype=mx.int32)
        tokens = landed.drawn.tokens
        if landed.rows == self.rows:
            return tokens
        places = {id(row): place for place, row in enumerate(landed.rows)}
        fresh = [row for row in self.rows if id(row) not in places]
        for row in fresh:
            places[id(row)] = len(places)
        if fresh:
            known = mx.array([row.last_token for row in fresh], dtype=tokens.dtype)
            tokens = mx.concatenate([tokens, known])
        return tokens[mx.array([places[id(row)] for row in self.rows])]


def _forced(row: Sequence) -> int:
    token = row.steering.forced() if row.steering else None
    return NOT_FORCED if token is None else token
