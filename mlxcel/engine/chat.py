"""The chat worker: takes messages, gives its scheduler a turn, and says what happened.

Knows token ids and rows. Knows nothing of text, HTTP or processes.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache as cached
from typing import Any

import mlx.core as mx

from mlxcel.core.admission import is_full
from mlxcel.core.errors import MlxcelError, QueueFull, StartupError
from mlxcel.core.status import ModelInfo
from mlxcel.core.window import effective_window, slot_count, slot_share
from mlxcel.engine.answers import Answers
from mlxcel.engine.cache.build import Ground, identity_of, prompt_cache
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.compiling import Compiling
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.engine.decode import Decoder
from mlxcel.engine.draft.build import speculation_from, weights_bytes, with_taps
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.mtp.build import policy_from
from mlxcel.engine.fetching import Fetching, FetchQueue
from mlxcel.engine.intake import Intake, prompt_of
from mlxcel.engine.kv.choose import batch_for, can_batch, can_cohort
from mlxcel.engine.kv.modes import plan_kv
from mlxcel.engine.language import LanguageCounters
from mlxcel.engine.lora import LoraScales
from mlxcel.engine.memory.guard import RequestGuard
from mlxcel.engine.memory.measure import card_in_mode, pool_numbers
from mlxcel.engine.memory.pool import KVPool, blocks_of
from mlxcel.engine.prefill import Prefiller
from mlxcel.engine.report import Report
from mlxcel.engine.request import Request
from mlxcel.engine.schedule.cohort import cohort_rules
from mlxcel.engine.schedule.rules import SchedulerRules
from mlxcel.engine.schedule.scheduler import ENGINE_ERRORS, Scheduler
from mlxcel.engine.schedule.shift import ShiftRules
from mlxcel.engine.schedule.victim import Policy
from mlxcel.engine.warming import Warming
from mlxcel.link.messages import (
    Ask,
    Cancel,
    EndThinking,
    Frame,
    RowAccepted,
    RowFailed,
    SetLora,
    Submit,
    ToWorker,
    Warm,
)
from mlxcel.weights.card import memory_card
from mlxcel.weights.load import LoadedModel
from mlxcel.worker import blas
from mlxcel.worker.base import Progress, Worker
from mlxcel.worker.memory import request_budget, working_set_bytes
from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)

CLEAR_INTERVAL = {Backend.CPU: 256, Backend.METAL: 256, Backend.CUDA: 0}
"""Decode steps between two calls of `mx.clear_cache()`; 0: never."""

CHUNK = {Backend.CPU: 256, Backend.METAL: 2048, Backend.CUDA: 2048}
"""Prompt tokens a tick. On a CPU 2,048 take 15 seconds, in which the other rows say nothing."""

NEVER_CUT = 0
POLL_S = 0.002
"""How soon an idle tick looks again whether a constraint is compiled."""


class ChatWorker(Worker):
    """Continuous batching over the slots of one model."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._queue_depth: int = options["max_queue_depth"]
        self._report = Report()

    def setup(self, parts: Mapping[str, Any], progress: Progress) -> ModelInfo:
        model: LoadedModel = parts["model"]
        self._slots = self._slots_of(model)
        share = slot_share(self.options["ctx_size"], self._slots)
        self._lora = LoraScales(model.lora)
        window = effective_window(share, model.train_window)
        self._build(model, parts.get("drafter"), window, progress)
        if self.options["warmup"]:
            progress("warming up", None)
            _warm_up(model, 1 if self._draft is None else 1 + self._draft.max_draft)
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
            prefill_chunk=self._chunk(model.backend),
            blas=blas.loaded() if model.backend is Backend.CPU else None,
            keeps_snapshots=self._keeps_snapshots,
            draft=self._draft,
        )

    def take(self, inbox: list[ToWorker]) -> Frame | None:
        for message in inbox:
            self._take(message)
        return self._frame()

    def tick(self, inbox: list[ToWorker]) -> tuple[Frame | None, float | None]:
        for message in inbox:
            self._take(message)
        for request, outcome in self._compiling.done():
            self._find(request, outcome)
        for one in self._fetching.done():
            self._cache.fetched(one.request, one.fetch)
            self._admit(one.request, one.matchers)
        self._answers.poll()
        is_busy = self._scheduler.turn()
        is_expected = self._compiling or self._fetching
        if not is_busy and not is_expected:
            is_busy = self._warming.turn()
        is_polling = is_expected or self._answers
        return self._frame(), 0.0 if is_busy else POLL_S if is_polling else None

    def close(self) -> None:
        self._compiling.close()
        self._answers.close()
        self._scheduler.clear()
        self._cache.close()

    def check(self) -> None:
        """Our own invariants, for tests."""
        self._scheduler.check()

    def _slots_of(self, model: LoadedModel) -> int:
        asked = slot_count(self.options["scheduler"])
        if asked == 1 or can_batch(model.network, model.family):
            return asked
        log.info("scheduler.parallel %d -> 1: rows of %s cannot be batched", asked, model.family)
        return 1

    def _build(
        self,
        model: LoadedModel,
        drafter: LoadedModel | DraftHead | None,
        window: int,
        progress: Progress,
    ) -> None:
        scheduler, cache = self.options["scheduler"], self.options["cache"]
        chunk = self._chunk(model.backend)
        plan = plan_kv(model.network, model.family, cache)
        model, plan = with_taps(model, plan, drafter)
        card = card_in_mode(memory_card(model), model.network, plan)
        card = replace(card, weights_bytes=card.weights_bytes + weights_bytes(drafter))
        size = plan.cap
        memory = working_set_bytes(model.backend)
        blocks = blocks_of(cache["kv_budget"], card, memory, chunk, slots=self._slots)
        if blocks is not None and blocks < card.attention_layers:
            raise StartupError(
                f"cache.kv_budget = {cache['kv_budget']} is less than one block of each layer"
            )
        pool = KVPool(blocks, card.attention_layers, cache["kv_watermark"], cap=size)
        budget = request_budget(self.options["request_memory_budget"], model.backend)
        compiler = Compiler(model.tokenizer_file, model.vocab_size)
        compiler.start()
        self._compiling = Compiling(compiler)
        self._intake = Intake(
            window=window,
            shifts=cache["context_shift"],
            slots=self._slots,
            guard=RequestGuard(budget, card, chunk, cap=size),
            pool=pool,
            lora=self._lora,
        )
        interval = scheduler["clear_interval"]
        kv = batch_for(model.network, self._slots, plan, model.backend)
        log.info("decode path: %s", kv.label)
        ground = Ground(
            model=model,
            name=self.options["model_name"],
            card=card,
            plan=plan,
            window=window,
            left_bytes=None if memory is None else max(0, memory - card.weights_bytes),
            keeps_columns=kv.keeps_columns,
            lora=self._lora.current,
        )
        counters = Counters()
        self._cache = prompt_cache(cache, ground, counters, progress)
        self._keeps_snapshots = self._cache.is_on and not kv.keeps_columns
        speculation = speculation_from(
            self.options["draft"],
            drafter=drafter,
            model=model,
            kv=kv,
            chunk=chunk,
            window=window,
            report=self._report,
            policy=policy_from(
                self.options["draft"],
                drafter=drafter,
                model=model,
                name=self.options["model_name"],
                plan=plan,
                kv=kv,
                cache_dir=self.options["cache_dir"],
                tell=self._report.tell_mtp,
                progress=progress,
            ),
        )
        self._draft = None if speculation is None else speculation.info
        decoder = Decoder(
            model.network,
            kv,
            lora=self._lora,
            report=self._report,
            language=LanguageCounters(
                self._report, compiler.token_bytes, is_exact=self.options["lang_bias_counters"]
            ),
            looks_ahead=scheduler["lookahead"],
            clear_interval=CLEAR_INTERVAL[model.backend] if interval is None else interval,
            keep=self._cache.keep_row,
            speculation=speculation,
        )
        prefiller = Prefiller(
            model.network, chunk=chunk, plan=plan, lora=self._lora, vocab=model.vocab_size
        )
        self._scheduler = Scheduler(
            self._rules(model, chunk, window),
            prefiller=prefiller,
            decoder=decoder,
            pool=pool,
            cache=self._cache,
            report=self._report,
        )
        self._fetching = FetchQueue()
        self._warming = Warming(prefiller, self._cache, self._lora, counters)
        self._answers = Answers(
            self._report,
            self._cache,
            pool=lambda: pool_numbers(pool, card),
            identity=cached(lambda: identity_of(ground)),
        )

    def _rules(self, model: LoadedModel, chunk: int, window: int) -> SchedulerRules:
        scheduler = self.options["scheduler"]
        preemption = scheduler["preemption"]
        cache = self.options["cache"]
        may_preempt = preemption["enabled"] and not scheduler["no_batch"]
        return SchedulerRules(
            slots=self._slots,
            interval=scheduler["prefill_grant_interval"],
            is_mixed=scheduler["mixed_step"],
            ignores_lanes=scheduler["no_batch"],
            policy=Policy(preemption["policy"]) if may_preempt else None,
            cohort=cohort_rules(
                most=scheduler["max_batch_prefill"] if can_cohort(model.network) else 1,
                cap=scheduler["max_batch_prefill_tokens"],
                chunk=chunk,
                window=cache["max_kv_size"],
            ),
            shift=ShiftRules(window=window, keep=cache["keep"]) if cache["context_shift"] else None,
        )

    def _chunk(self, backend: Backend) -> int:
        scheduler = self.options["scheduler"]
        if scheduler["no_batch"]:
            return NEVER_CUT
        asked: int | None = scheduler["prefill_chunk_size"]
        return CHUNK[backend] if asked is None else asked

    def _take(self, message: ToWorker) -> None:
        match message:
            case Submit():
                self._enqueue(message)
            case Cancel(id=name, choice=choice):
                if choice is None:
                    self._compiling.cancel(name)
                    self._fetching.cancel(name)
                self._scheduler.cancel(name, choice)
            case EndThinking(id=name):
                self._scheduler.end_thinking(name)
            case SetLora(scales=scales):
                self._lora.set(scales)
            case Ask():
                self._answers.take(message)
            case Warm():
                self._warming.add(message)

    def _enqueue(self, submit: Submit) -> None:
        held = self._scheduler.held + len(self._compiling) + len(self._fetching)
        try:
            if is_full(held, self._slots, self._queue_depth):
                raise QueueFull
            request = self._intake.read(submit)
        except MlxcelError as why:
            self._report.say(RowFailed(submit.id, why.info()))
            return
        self._warming.stop()
        if submit.constraint is None:
            self._find(request, [])
        else:
            self._compiling.add(request)

    def _find(self, request: Request, matchers: list[Matcher] | MlxcelError) -> None:
        """What is kept of its prompt on disk is brought first."""
        if isinstance(matchers, MlxcelError):
            self._report.say(RowFailed(request.id, matchers.info()))
        elif (fetch := self._cache.fetch(request)) is not None:
            self._fetching.add(Fetching(request, matchers, fetch))
        else:
            self._admit(request, matchers)

    def _admit(self, request: Request, matchers: list[Matcher]) -> None:
        """From here on nothing refuses the request."""
        self._report.say(RowAccepted(request.id, self._cache.preview(request)))
        self._scheduler.add(prompt_of(request, matchers))

    def _frame(self) -> Frame | None:
        return self._report.frame(
            active=self._scheduler.active,
            waiting=self._scheduler.waiting,
            slots=self._slots,
            **self._scheduler.memory,
        )


def _warm_up(model: LoadedModel, widest: int) -> None:
    """One token through the network: pages the weights in and compiles its kernels. Those of each
    width a verify round may have as well, where widths have kernels of their own."""
    widths = [1] if model.backend is Backend.CPU else range(1, widest + 1)
    try:
        for width in widths:
            mx.eval(model.network(mx.zeros((1, width), dtype=mx.int32))[:, -1])
    except ENGINE_ERRORS as why:
        log.warning("the warm-up failed: %s", why)
