"""From a row's events to the answer's events: tokens become text, stop strings end it.

Plain and synchronous: one `Assembler` per answer, fed in order by the service.
"""

from collections.abc import Callable, Iterator
from time import monotonic

import msgspec

from mlxcel.core.events import (
    Accepted,
    Event,
    Failed,
    Finished,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.link.messages import (
    RowAccepted,
    RowEvent,
    RowFailed,
    RowFinished,
    RowStarted,
    RowTokens,
)
from mlxcel.text.detokenize import Detokenizer
from mlxcel.text.stops import StopMatcher

Clock = Callable[[], float]


class Assembler:
    """`is_done` once Finished or Failed was said; the row may still run then: cancel it."""

    def __init__(
        self,
        *,
        prompt_tokens: int,
        detokenizer: Detokenizer,
        stops: StopMatcher,
        received_s: float,
        clock: Clock = monotonic,
    ) -> None:
        self._prompt_tokens = prompt_tokens
        self._detokenizer = detokenizer
        self._stops = stops
        self._received_s = received_s
        self._clock = clock
        self._completion_tokens = 0
        self._started: RowStarted | None = None
        self._first_token_s = 0.0
        self.is_done = False

    @property
    def has_begun(self) -> bool:
        """The first token is there: from now on silence means trouble."""
        return self._started is not None

    def take(self, row: RowEvent) -> Iterator[Event]:
        match row:
            case RowAccepted():
                yield Accepted(self._prompt_tokens)
            case RowStarted():
                self._started = row
                self._first_token_s = self._clock()
            case RowTokens(ids=ids):
                yield from self._tokens(ids)
            case RowFinished():
                yield from self._finished(row)
            case RowFailed(error=error):
                self.is_done = True
                yield Failed(error)

    def _tokens(self, ids: list[int]) -> Iterator[Event]:
        text, stop = self._read(ids)
        if text:
            yield TextDelta(text)
        if stop is not None:
            yield self._stopped(stop, self._usage(), self._own_timings())

    def _read(self, ids: list[int]) -> tuple[str, str | None]:
        """Token by token: the count of an answer ends with the token that completed a stop."""
        parts = []
        for token in ids:
            self._completion_tokens += 1
            text, stop = self._stops.feed(self._detokenizer.feed((token,)))
            parts.append(text)
            if stop is not None:
                return "".join(parts), stop
        return "".join(parts), None

    def _finished(self, row: RowFinished) -> Iterator[Event]:
        text, stop = self._rest()
        if text:
            yield TextDelta(text)
        timings = msgspec.structs.replace(row.timings, total_ms=self._total_ms())
        if stop is not None:
            yield self._stopped(stop, row.usage, timings)
            return
        self.is_done = True
        yield Finished(row.reason, row.usage, timings)

    def _rest(self) -> tuple[str, str | None]:
        """What both were holding back; nothing follows, so it is decided now."""
        text, stop = self._stops.feed(self._detokenizer.flush())
        if stop is not None:
            return text, stop
        tail, stop = self._stops.flush()
        return text + tail, stop

    def _stopped(self, stop: str, usage: Usage, timings: Timings) -> Finished:
        self.is_done = True
        return Finished(FinishReason.STOP, usage, timings, stop)

    def _usage(self) -> Usage:
        return Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._completion_tokens)

    def _own_timings(self) -> Timings:
        """The worker's last ones are not there yet when a stop string ends the answer."""
        assert self._started is not None, "a stop needs a token"
        return Timings(
            queued_ms=self._started.queued_ms,
            prompt_ms=self._started.prompt_ms,
            decode_ms=(self._clock() - self._first_token_s) * 1000,
            total_ms=self._total_ms(),
        )

    def _total_ms(self) -> float:
        return (self._clock() - self._received_s) * 1000
