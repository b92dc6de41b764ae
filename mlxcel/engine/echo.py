"""A scripted engine without weights: it repeats what it is told, says its lines, breaks on demand.

For the tests of client authors and for our own. It obeys the same messages, bounds and order
of checks as the real engine; it has no arrays and no sampling.

A script is said as it stands: constraints, thinking and its end, the loop guard and `ignore_eos`
do not bind it. On a command line a backslash and an n are those two characters, not a line end.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.admission import is_full
from mlxcel.core.byte_vocab import VOCAB_SIZE
from mlxcel.core.errors import (
    ContextLengthExceeded,
    GenerationFailed,
    MlxcelError,
    NotImplementedHere,
    QueueFull,
)
from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.core.status import ModelInfo
from mlxcel.core.window import effective_window, slot_count, slot_share
from mlxcel.engine.cache.counters import disabled_body, reset_body
from mlxcel.engine.echo_script import Fault, FaultKind, Script, heard
from mlxcel.engine.report import Report
from mlxcel.link.messages import (
    Ask,
    Cancel,
    Frame,
    Question,
    Reply,
    RowAccepted,
    RowEnded,
    RowFailed,
    RowFinished,
    RowProgress,
    RowPrompt,
    RowStarted,
    RowTokens,
    Submit,
    TokenScores,
    ToWorker,
    unpack_tokens,
)
from mlxcel.worker.base import Progress, Worker
from mlxcel.worker.identity import is_own_process

CRASH_CODE = 70
UNLIKELY = -100.0
"""The log-probability of whatever the script does not say."""
LAST_FRAME_S = 0.05
"""Before a scripted crash: time for the tokens said so far to leave."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One request; mutable, touched by the tick alone. Its choices say the same, in step."""

    id: str
    prompt: tuple[int, ...]
    scores_prompt: bool
    tells_progress: bool
    max_tokens: int
    choices: int
    top_logprobs: int | None
    reply: bytes
    fault: Fault | None
    arrived_at: float
    started_at: float = 0.0
    first_at: float | None = None
    last_at: float = 0.0
    due_at: float = 0.0
    said: int = 0

    @property
    def length(self) -> int:
        return len(self.prompt) + self.said


class EchoWorker(Worker):
    """Every row that is due says one token a tick."""

    def __init__(
        self, options: Mapping[str, Any], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(options)
        self._clock = clock
        self._slots = slot_count(options["scheduler"])
        self._max_waiting: int = options["max_queue_depth"]
        self._delay_s: float = options["delay_ms"] / 1000
        self._share = slot_share(options["ctx_size"], self._slots)
        self._window = effective_window(self._share, options["window"])
        self._script = Script.read(options["script"], options["faults"])
        self._waiting: deque[Row] = deque()
        self._rows: dict[str, Row] = {}
        self._report = Report()

    def setup(self, parts: Mapping[str, Any], progress: Progress) -> ModelInfo:
        progress("learning the script", None)
        return ModelInfo(
            family="echo",
            vocab_size=VOCAB_SIZE,
            context_window=self._share,
            train_window=self.options["window"],
            hidden_size=0,
            parameters=0,
            weights_bytes=0,
            precision="none (echo: a script, no weights)",
            device="cpu",
        )

    def take(self, inbox: list[ToWorker]) -> Frame | None:
        for message in inbox:
            self._take(message)
        return self._frame()

    def tick(self, inbox: list[ToWorker]) -> tuple[Frame | None, float | None]:
        for message in inbox:
            self._take(message)
        self._admit()
        self._speak()
        return self._frame(), self._may_sleep()

    def close(self) -> None:
        self._waiting.clear()
        self._rows.clear()

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Submit):
            self._enqueue(message)
        elif isinstance(message, Cancel) and message.choice is None:
            self._rows.pop(message.id, None)
            self._waiting = deque(row for row in self._waiting if row.id != message.id)
        elif isinstance(message, Ask):
            self._report.answer(_answer(message))

    def _enqueue(self, submit: Submit) -> None:
        tokens = unpack_tokens(submit.tokens)
        if len(tokens) >= self._window:
            self._fail(submit.id, ContextLengthExceeded(len(tokens), self._window))
        elif is_full(len(self._rows) + len(self._waiting), self._slots, self._max_waiting):
            self._fail(submit.id, QueueFull())
        else:
            self._report.say(RowAccepted(submit.id))
            self._wait(self._row(submit, tokens))

    def _wait(self, row: Row) -> None:
        if row.max_tokens > 0 or row.scores_prompt:
            self._waiting.append(row)
        else:
            row.started_at = row.last_at = row.arrived_at
            self._end(row, FinishReason.LENGTH)

    def _row(self, submit: Submit, tokens: tuple[int, ...]) -> Row:
        told = heard(tokens)
        return Row(
            id=submit.id,
            prompt=tokens,
            scores_prompt=submit.scores_prompt,
            tells_progress=submit.tells_progress,
            max_tokens=submit.max_tokens,
            choices=submit.choices,
            top_logprobs=submit.top_logprobs,
            reply=self._script.reply(told).encode(),
            fault=self._script.fault(told),
            arrived_at=self._clock(),
        )

    def _admit(self) -> None:
        while self._waiting and len(self._rows) < self._slots:
            row = self._waiting.popleft()
            row.started_at = row.last_at = self._clock()
            row.due_at = row.started_at + self._delay_s
            self._rows[row.id] = row
            self._report.started += 1
            self._report.prompt_tokens += len(row.prompt)
            self._report.saw(row.length)
            self._hear(row)

    def _hear(self, row: Row) -> None:
        """Reading a prompt takes no time at all."""
        total = len(row.prompt)
        if row.tells_progress:
            for processed in (0, total):
                self._report.say(
                    RowProgress(id=row.id, total=total, cached=0, processed=processed, took_ms=0.0)
                )
        if row.scores_prompt and total > 1:
            most = 0 if row.top_logprobs is None else row.top_logprobs
            scores = [_certain(token, most) for token in row.prompt[1:]]
            self._report.say(RowPrompt(id=row.id, scores=scores))
        if row.max_tokens <= 0:
            self._finish(row, FinishReason.LENGTH)

    def _speak(self) -> None:
        now = self._clock()
        due = [row for row in self._rows.values() if row.due_at <= now]
        if due:
            self._report.stepped(len(due))
        for row in due:
            self._advance(row, now)

    def _advance(self, row: Row, now: float) -> None:
        if row.fault is not None and row.fault.at_token == row.said:
            self._break(row, row.fault.kind)
            return
        if row.said == len(row.reply):
            self._finish(row, FinishReason.EOS)
            return
        if row.first_at is None:
            row.first_at = now
            self._report.say(self._began(row, now))
        token = row.reply[row.said]
        scores = None if row.top_logprobs is None else [_certain(token, row.top_logprobs)]
        for choice in range(row.choices):
            self._report.say(RowTokens(id=row.id, ids=[token], choice=choice, scores=scores))
        self._report.decode_tokens += row.choices
        row.said += 1
        self._report.saw(row.length)
        row.last_at = now
        row.due_at = now + self._delay_s
        if row.said >= row.max_tokens:
            self._finish(row, FinishReason.LENGTH)
        elif row.length + 1 >= self._window:
            self._finish(row, FinishReason.CONTEXT)

    def _began(self, row: Row, now: float) -> RowStarted:
        queued_ms = (row.started_at - row.arrived_at) * 1000
        return RowStarted(row.id, queued_ms, (now - row.started_at) * 1000)

    def _break(self, row: Row, kind: FaultKind) -> None:
        match kind:
            case FaultKind.ERROR:
                del self._rows[row.id]
                self._fail(row.id, GenerationFailed(f"scripted fault at token {row.said}"))
            case FaultKind.HANG:
                while True:
                    time.sleep(1)
            case FaultKind.CRASH:
                if is_own_process():
                    time.sleep(LAST_FRAME_S)
                    os._exit(CRASH_CODE)
                raise RuntimeError(f"scripted crash at token {row.said}")

    def _finish(self, row: Row, reason: FinishReason) -> None:
        del self._rows[row.id]
        self._report.completed += 1
        self._end(row, reason)

    def _end(self, row: Row, reason: FinishReason) -> None:
        for choice in range(row.choices):
            self._report.say(RowEnded(id=row.id, reason=reason, choice=choice))
        first_at = row.last_at if row.first_at is None else row.first_at
        timings = Timings(
            queued_ms=(row.started_at - row.arrived_at) * 1000,
            prompt_ms=(first_at - row.started_at) * 1000,
            decode_ms=(row.last_at - first_at) * 1000,
        )
        said = row.said * row.choices
        usage = Usage(prompt_tokens=len(row.prompt), completion_tokens=said)
        self._report.say(RowFinished(row.id, usage, timings))

    def _fail(self, request_id: str, error: MlxcelError) -> None:
        self._report.say(RowFailed(request_id, error.info()))

    def _frame(self) -> Frame | None:
        return self._report.frame(
            active=len(self._rows), waiting=len(self._waiting), slots=self._slots
        )

    def _may_sleep(self) -> float | None:
        if self._waiting and len(self._rows) < self._slots:
            return 0.0
        if not self._rows:
            return None
        next_at = min(row.due_at for row in self._rows.values())
        return max(0.0, next_at - self._clock())


def _answer(ask: Ask) -> Reply:
    """There is no KV here, so no cache of it."""
    match ask.question:
        case Question.CACHE_STATS:
            return Reply(id=ask.id, value=disabled_body())
        case Question.CACHE_RESET:
            return Reply(id=ask.id, value=reset_body(0, 0))
    error = NotImplementedHere(f"the echo worker has no KV; {ask.question} needs a model")
    return Reply(id=ask.id, error=error.info())


def _certain(token: int, top: int) -> TokenScores:
    """A script knows what comes next; the others are named because they were asked for."""
    others = [byte for byte in range(top + 1) if byte != token]
    best = [(token, 0.0), *((byte, UNLIKELY) for byte in others)]
    return TokenScores(0.0, best[:top])
