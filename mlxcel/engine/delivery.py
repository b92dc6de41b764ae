"""What one more token means for its row: the finish checks, and the events that tell of it."""

import time
from collections.abc import Callable

from mlxcel.core.errors import GenerationFailed, MlxcelError
from mlxcel.core.events import FinishReason
from mlxcel.engine.decode import Said
from mlxcel.engine.loop import repeats
from mlxcel.engine.report import Report
from mlxcel.engine.request import Request
from mlxcel.engine.sequence import Sequence
from mlxcel.link.messages import RowEnded, RowFailed, RowTokens

NOTHING_DRAWN = "no token could be drawn: the model's output is not a number, or all is banned"


class Delivery:
    """Stop strings are not known here: the front ends such a choice, and cancels."""

    def __init__(self, report: Report, forget: Callable[..., None]) -> None:
        """`forget(request, is_sound=...)` is told of every request that is over; not sound: after
        an error."""
        self._report = report
        self._forget = forget

    def deliver(self, said: Said) -> bool:
        """Takes one output token. True when its row has ended."""
        row, token = said.row, said.token
        if token < 0:
            self.fail(row.request, row.trouble or GenerationFailed(NOTHING_DRAWN))
            return True
        if not row.request.first_token_s:
            row.request.first_token_s = time.monotonic()
            self._report.say(row.request.began())
        if row.is_end(token):
            row.end_token = token
            return self.end(row, FinishReason.EOS)
        self._say(said)
        try:
            reason = _finish_reason(row, token)
        except MlxcelError as why:
            self.fail(row.request, why)
            return True
        return reason is not None and self.end(row, reason)

    def end(self, row: Sequence, reason: FinishReason) -> bool:
        request = row.request
        self._report.say(RowEnded(id=request.id, reason=reason, choice=row.choice))
        request.open_choices -= 1
        if not request.open_choices:
            self._report.completed += 1
            self._report.say(request.finished(time.monotonic()))
            self._forget(request, is_sound=True)
        return True

    def fail(self, request: Request, error: MlxcelError) -> None:
        """The request is over, all choices with it; the worker goes on with the others."""
        self._report.say(RowFailed(request.id, error.info()))
        self._forget(request, is_sound=False)

    def _say(self, said: Said) -> None:
        row = said.row
        row.output.append(said.token)
        row.request.produced += 1
        self._report.decode_tokens += 1
        self._report.saw(len(row.request.prompt) + len(row.output))
        scores = None if said.scores is None else [said.scores]
        self._report.say(
            RowTokens(
                id=row.request.id,
                ids=[said.token],
                choice=row.choice,
                scores=scores,
                is_forced=said.is_forced,
            )
        )


def _finish_reason(row: Sequence, token: int) -> FinishReason | None:
    """In the order of the contract (scheduler 8)."""
    if row.steering is not None:
        row.steering.accept(token)
        if row.steering.is_complete:
            return FinishReason.STRUCTURE
    if len(row.output) >= row.request.limit:
        return row.request.reason_at_limit()
    guard = row.request.submit.loop
    if guard is not None and repeats(row.output, guard):
        return FinishReason.LOOP
    return None
