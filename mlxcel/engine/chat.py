"""The chat worker: takes messages, decides, prefills or decodes, and says what happened.

Knows token ids and rows. Knows nothing of text, HTTP or processes.
"""

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlxcel.core.admission import is_full
from mlxcel.core.errors import GenerationFailed, QueueFull
from mlxcel.core.events import FinishReason
from mlxcel.core.status import ModelInfo
from mlxcel.core.window import effective_window, slot_share
from mlxcel.engine.decide import Action, View, decide, next_lost
from mlxcel.engine.decode import Decoder
from mlxcel.engine.kv.choose import batch_for, can_batch
from mlxcel.engine.prefill import Prefiller
from mlxcel.engine.report import Report
from mlxcel.engine.sequence import Sequence, sequence_from
from mlxcel.link.messages import (
    Cancel,
    Frame,
    RowAccepted,
    RowFailed,
    RowTokens,
    Submit,
    ToWorker,
)
from mlxcel.weights.load import LoadedModel
from mlxcel.worker import blas
from mlxcel.worker.base import Progress, Worker
from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)

CLEAR_INTERVAL = {Backend.CPU: 256, Backend.METAL: 256, Backend.CUDA: 0}
"""Decode steps between two calls of `mx.clear_cache()`; 0: never."""


CHUNK = {Backend.CPU: 256, Backend.METAL: 2048, Backend.CUDA: 2048}
"""Prompt tokens a tick. On a CPU 2,048 take 15 seconds, in which the other rows say nothing."""


class ChatWorker(Worker):
    """Continuous batching over the slots of one model."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        scheduler = options["scheduler"]
        self._slots: int = scheduler["parallel"]
        self._queue_depth: int = options["max_queue_depth"]
        self._interval: int = scheduler["prefill_grant_interval"]
        self._chunk: int | None = scheduler["prefill_chunk_size"]
        self._waiting: deque[Sequence] = deque()
        self._parked: Sequence | None = None
        self._report = Report()
        self._lost = 0

    def setup(self, parts: Mapping[str, Any], progress: Progress) -> ModelInfo:
        model: LoadedModel = parts["model"]
        if self._slots > 1 and not can_batch(model.network):
            log.info(
                "scheduler.parallel %d -> 1: the caches of %s cannot be merged into a batch",
                self._slots,
                model.family,
            )
            self._slots = 1
        share = slot_share(self.options["ctx_size"], self._slots)
        self._window = effective_window(share, model.train_window)
        chunk = CHUNK[model.backend] if self._chunk is None else self._chunk
        self._prefiller = Prefiller(model.network, chunk=chunk)
        self._decoder = Decoder(model.network, batch_for(model.network, self._slots))
        interval = self.options["scheduler"]["clear_interval"]
        self._clear_interval = CLEAR_INTERVAL[model.backend] if interval is None else interval
        if self.options["warmup"]:
            progress("warming up", None)
            self._warm_up(model)
        return ModelInfo(
            family=model.family,
            vocab_size=model.vocab_size,
            context_window=share,
            train_window=model.train_window,
            hidden_size=model.hidden_size,
            parameters=model.parameters,
            weights_bytes=model.weights_bytes,
            precision=model.precision,
            device=str(model.backend),
            blas=blas.loaded() if model.backend is Backend.CPU else None,
        )

    def tick(self, inbox: list[ToWorker]) -> tuple[Frame | None, float | None]:
        for message in inbox:
            self._take(message)
        view = self._view()
        action = decide(view)
        self._lost = next_lost(view, action)
        if action is Action.PREFILL:
            self._prefill()
        elif action is Action.DECODE:
            self._decode()
        is_idle = decide(self._view()) is Action.IDLE
        return self._frame(), None if is_idle else 0.0

    def close(self) -> None:
        self._decoder.clear()
        self._waiting.clear()
        self._parked = None

    def check(self) -> None:
        """Our own invariants, for tests."""
        self._decoder.check()
        assert len(self._decoder.rows) <= self._slots

    def _warm_up(self, model: LoadedModel) -> None:
        """One token through the network: pages the weights in and compiles its kernels."""
        mx.eval(model.network(mx.array([[0]]))[:, -1])

    def _view(self) -> View:
        return View(
            is_parked=self._parked is not None,
            active=len(self._decoder.rows),
            is_flying=self._decoder.has_work,
            waiting=len(self._waiting),
            slots=self._slots,
            interval=self._interval,
            lost=self._lost,
        )

    def _take(self, message: ToWorker) -> None:
        match message:
            case Submit():
                self._enqueue(message)
            case Cancel(id=name):
                self._cancel(name)

    def _enqueue(self, submit: Submit) -> None:
        held = len(self._decoder.rows) + (self._parked is not None) + len(self._waiting)
        if is_full(held, self._slots, self._queue_depth):
            self._report.say(RowFailed(submit.id, QueueFull().info()))
            return
        sequence = sequence_from(submit, window=self._window, now_s=time.monotonic())
        self._report.say(RowAccepted(submit.id))
        if sequence.limit <= 0:
            reason = sequence.reason_at_limit()
            self._report.say(sequence.finished(reason, sequence.queued_s))
            return
        self._waiting.append(sequence)

    def _cancel(self, name: str) -> None:
        self._waiting = deque(s for s in self._waiting if s.id != name)
        if self._parked is not None and self._parked.id == name:
            self._parked = None
        for sequence in [row for row in self._decoder.rows if row.id == name]:
            self._decoder.leave(sequence)

    def _prefill(self) -> None:
        sequence = self._parked or self._waiting.popleft()
        self._parked = None
        now_s = time.monotonic()
        if not sequence.first_prefill_s:
            sequence.first_prefill_s = now_s
            self._report.started += 1
        before = sequence.computed
        try:
            token = self._prefiller.step(sequence)
        except (RuntimeError, ValueError, MemoryError) as why:
            self._fail([sequence], why)
            return
        self._report.prefill_chunks += 1
        self._report.prompt_tokens += sequence.computed - before
        if token is None:
            self._parked = sequence
            return
        sequence.first_token_s = time.monotonic()
        self._report.say(sequence.began())
        if not self._advance(sequence, token):
            self._decoder.join(sequence, token)

    def _decode(self) -> None:
        try:
            for sequence, token in self._decoder.step():
                if self._advance(sequence, token):
                    self._decoder.leave(sequence)
        except (RuntimeError, ValueError, MemoryError) as why:
            self._fail(self._decoder.clear(), why)
            return
        self._report.decode_steps += 1
        if self._clear_interval and self._report.decode_steps % self._clear_interval == 0:
            mx.clear_cache()

    def _advance(self, sequence: Sequence, token: int) -> bool:
        """Take one output token. True when the row has ended."""
        if sequence.is_end(token):
            return self._finish(sequence, FinishReason.EOS)
        sequence.produced += 1
        self._report.decode_tokens += 1
        self._report.say(RowTokens(sequence.id, [token]))
        if sequence.produced >= sequence.limit:
            return self._finish(sequence, sequence.reason_at_limit())
        return False

    def _finish(self, sequence: Sequence, reason: FinishReason) -> bool:
        self._report.completed += 1
        self._report.say(sequence.finished(reason, time.monotonic()))
        return True

    def _fail(self, sequences: list[Sequence], why: Exception) -> None:
        """These rows end with an error; the worker goes on with the others."""
        log.error("generation failed for %d rows", len(sequences), exc_info=why)
        error = GenerationFailed(str(why))
        self._report.say(*(RowFailed(s.id, error.info()) for s in sequences))

    def _frame(self) -> Frame | None:
        return self._report.frame(
            active=len(self._decoder.rows) + (self._parked is not None),
            waiting=len(self._waiting),
            slots=self._slots,
            kv_bytes=self._decoder.kv_bytes,
        )
