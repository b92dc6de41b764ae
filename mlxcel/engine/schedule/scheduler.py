"""One turn of the engine: decide, then prefill, decode or both.

Owns the rows in all their states: waiting in a lane, parked in mid-prefill, decoding.
"""

import logging
from collections.abc import Iterable

from mlxcel.core.errors import GenerationFailed, NoKvLeft
from mlxcel.core.events import FinishReason
from mlxcel.core.request import Lane
from mlxcel.engine.cache.prompt_cache import PromptCache
from mlxcel.engine.decode import Decoder, Said
from mlxcel.engine.delivery import Delivery
from mlxcel.engine.memory.pool import KVPool
from mlxcel.engine.prefill import Prefiller
from mlxcel.engine.prompt import Prompt
from mlxcel.engine.report import Report
from mlxcel.engine.request import Request
from mlxcel.engine.schedule.cohort import cohort_of
from mlxcel.engine.schedule.decide import Action, View, decide, next_lost
from mlxcel.engine.schedule.lanes import Lanes
from mlxcel.engine.schedule.reader import Reader
from mlxcel.engine.schedule.room import Room
from mlxcel.engine.schedule.rules import SchedulerRules
from mlxcel.engine.sequence import Sequence, key_of
from mlxcel.link.messages import RowPaused

log = logging.getLogger(__name__)

ENGINE_ERRORS = (RuntimeError, ValueError, MemoryError)
"""What a forward raises. Its rows end with an error; the worker goes on."""


class Scheduler:
    def __init__(
        self,
        rules: SchedulerRules,
        *,
        prefiller: Prefiller,
        decoder: Decoder,
        pool: KVPool,
        cache: PromptCache,
        report: Report,
    ) -> None:
        self._rules = rules
        self._reader = Reader(prefiller, cache, report)
        self._decoder = decoder
        self._pool = pool
        self._cache = cache
        self._room = Room(rules, decoder, pool)
        self._report = report
        self._delivery = Delivery(report, self._forget)
        self._lanes = Lanes(ignores_lanes=rules.ignores_lanes)
        self._parked: Prompt | None = None
        self._lost = 0
        self._requests: dict[str, Request] = {}

    # What the worker calls.

    @property
    def held(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    @property
    def active(self) -> int:
        """Rows that hold a slot."""
        return len(self._decoder.rows) + (self._parked is not None)

    @property
    def waiting(self) -> int:
        return len(self._lanes)

    @property
    def memory(self) -> dict[str, int]:
        """Gauges by their names in `WorkerStats`."""
        return {
            "kv_bytes": self._decoder.kv_bytes,
            "kv_blocks": self._pool.live,
            "kv_block_budget": self._pool.budget or 0,
        }

    def add(self, prompt: Prompt) -> None:
        self._requests[prompt.request.id] = prompt.request
        if prompt.request.limit > 0 or prompt.is_scored:
            self._lanes.push(prompt)
        else:
            self._report.started += 1
            self._end_unanswered(prompt)

    def cancel(self, name: str, choice: int | None = None) -> None:
        """Forgets a request, or ends one choice of it that nobody reads any more."""
        request = self._requests.get(name)
        if request is None:
            return
        if choice is None:
            self._forget(request, is_sound=True)
        else:
            self._end_choice(request, choice)

    def end_thinking(self, name: str) -> None:
        for row in [row for row in self._rows() if row.request.id == name]:
            row.end_thinking()

    def turn(self) -> bool:
        """Does one thing. False when there is nothing more to do."""
        self._cache.begin_turn()
        view = self._view()
        action = decide(view)
        self._lost = next_lost(view, action)
        match action:
            case Action.PREFILL:
                self._report.prefill_grants += view.is_parked and view.active > 0
                self._prefill()
            case Action.MIXED:
                self._mixed()
            case Action.DECODE:
                self._decode()
        is_busy = decide(self._view()) is not Action.IDLE
        self._cache.end_turn(is_idle=not is_busy)
        return is_busy

    def clear(self) -> None:
        self._decoder.clear()
        for request in list(self._requests.values()):
            self._forget(request, is_sound=False)

    def check(self) -> None:
        """Our own invariants, for tests."""
        self._decoder.check()
        self._pool.check()
        self._cache.check()
        assert len(self._decoder.rows) <= self._rules.slots
        rows = [*self._decoder.rows, *(row for prompt in self._prompts() for row in prompt.rows)]
        assert len({row.key for row in rows}) == len(rows), "a row is in two places"
        assert {row.request.id for row in rows} <= self._requests.keys()
        if not self._requests:
            assert not self._pool.live, "KV blocks without a request"

    # What a turn consists of.

    def _view(self) -> View:
        rows, head = self._decoder.rows, self._lanes.head
        return View(
            is_parked=self._parked is not None,
            active=len(rows),
            is_flying=self._decoder.is_flying,
            waiting=len(self._lanes) if head is not None and self._room.may_enter(head) else 0,
            slots=self._rules.slots,
            interval=self._rules.interval,
            lost=self._lost,
            is_mixed=self._rules.is_mixed,
            may_preempt=self._rules.policy is not None,
            head_lane=Lane.LOW if head is None else head.lane,
            lowest_lane=max((row.lane for row in rows), default=Lane.HIGH),
        )

    def _prefill(self) -> None:
        try:
            prompts = self._take()
        except ENGINE_ERRORS as why:  # of a step that was read to make room
            self._lose_rows(why)
            return
        try:
            self._reader.read(prompts)
        except ENGINE_ERRORS as why:
            self._fail([prompt.request for prompt in prompts], why)
            return
        if self._land(prompts):
            self._decode()

    def _mixed(self) -> None:
        """The chunk is queued on the device first, the step behind it; both are waited for
        together."""
        assert self._parked is not None
        prompt = self._parked
        try:
            self._reader.begin([prompt])
            self._decode()
            self._reader.finish(prompt)
        except ENGINE_ERRORS as why:
            self._fail([prompt.request], why)
            return
        self._report.mixed_steps += 1
        if self._parked is prompt:
            self._parked = None
            self._land([prompt])

    def _decode(self) -> None:
        try:
            self._shift()
            self._grow()
            self._read(self._decoder.step())
        except ENGINE_ERRORS as why:
            self._lose_rows(why)

    def _take(self) -> list[Prompt]:
        """The parked prompt, else the head of the queue and those that go with it. None when
        no room could be made after all."""
        if self._parked is not None:
            prompt, self._parked = self._parked, None
            return [prompt]
        head = self._lanes.head
        if head is None or not self._make_room_for(head) or self._lanes.head is not head:
            return []  # making room may have ended the very request it was for
        together = self._cache.cold(
            cohort_of(self._lanes.lane_of_head(), self._rules.cohort, free=self._room.free)
        )
        taken = [self._pop()]
        while len(taken) < len(together) and self._room.has_blocks(together[len(taken)]):
            taken.append(self._pop())
        return taken

    def _pop(self) -> Prompt:
        """The head, with KV blocks for its first row and as many more as there is room for.
        Rows that must wait hold none: they would keep others, and each other, from running."""
        prompt = self._lanes.pop()
        if prompt.is_cold:
            self._cache.adopt(prompt)  # before what is kept has to make room for it
        for row in prompt.rows[: self._room.free]:
            if row is prompt.rows[0] or self._room.has_blocks(prompt):
                self._pool.take(row.key, len(prompt.tokens))
        self._cache.fit(self._pool.left)
        self._reader.open(prompt)
        return prompt

    def _land(self, prompts: list[Prompt]) -> bool:
        """After a forward: what is ready joins the batch, as far as there are places. True when
        some row did."""
        joined = False
        for prompt in prompts:
            if not prompt.is_ready:
                self._parked = prompt
            elif prompt.request.limit > 0:
                joined |= self._join(prompt)
            else:
                self._end_unanswered(prompt)
        return joined

    def _join(self, prompt: Prompt) -> bool:
        assert prompt.kv is not None
        landing = [row for row in prompt.rows if self._pool.holds(row.key)]
        prompt.rows = [row for row in prompt.rows if row not in landing]
        if prompt.rows:
            self._lanes.push_front(prompt)
        for row in landing:
            self._decoder.join(row, prompt.kv, prompt.index)
        return bool(landing)

    def _read(self, tokens: Iterable[Said]) -> None:
        for said in tokens:
            if self._delivery.deliver(said):
                self._drop(said.row)
                self._tell_pause(said.row.request)

    def _shift(self) -> None:
        """Rows that have filled their window forget, and are read anew; or end."""
        rules = self._rules.shift
        if rules is None or not any(rules.is_due(row.kv_length) for row in self._decoder.rows):
            return
        self._read(self._decoder.settle())
        for row in [row for row in self._decoder.rows if rules.is_due(row.kv_length)]:
            submit = row.request.submit
            left = rules.left_of(
                row.tokens, len(row.request.prompt), keep=submit.keep, discard=submit.discard
            )
            if left is None:
                self._delivery.end(row, FinishReason.CONTEXT)
                self._drop(row)
                continue
            row.forget_all_but(left)
            self._set_aside(row)

    def _set_aside(self, row: Sequence) -> None:
        """It leaves the batch; what it has said so far becomes part of a prompt of its own."""
        self._decoder.evict(row)
        self._pool.free(row.key)
        self._lanes.push_front(Prompt(request=row.request, tokens=row.tokens, rows=[row]))
        self._tell_pause(row.request)

    # Room: slots and KV blocks.

    def _make_room_for(self, prompt: Prompt) -> bool:
        """A slot and KV blocks, by driving out rows that are less important."""
        while self._room.free <= 0 or not self._room.has_blocks(prompt):
            if not self._drive_out(prompt.lane):
                return False
        return True

    def _drive_out(self, lane: Lane) -> bool:
        """One row. Its KV goes; prompt and answer so far become its new prompt. What is in
        flight is read first, which may end rows and make room by itself."""
        if self._decoder.is_flying:
            self._read(self._decoder.settle())
            return True
        victim = self._room.victim(lane)
        if victim is None:
            return False
        if not self._pool.fits_at_all(len(victim.tokens)):
            self._delivery.fail(victim.request, NoKvLeft())  # it could not grow any more either
            return True
        self._decoder.keep(victim)
        self._report.preemptions += 1
        self._set_aside(victim)
        return True

    def _tell_pause(self, request: Request) -> None:
        """No row of it decodes, though it has begun: that is no reason to think it stuck."""
        is_held = self._requests.get(request.id) is request
        if is_held and not any(row.request is request for row in self._decoder.rows):
            self._report.say(RowPaused(request.id))

    def _grow(self) -> None:
        """Before a step: every row that takes part gets a position more, or has to go."""
        short = [row for row in self._decoder.rows if not self._room.has_grown(row)]
        for row in short:
            # One before it may have driven it out, or ended while the flight was read.
            while row in self._decoder.rows and not self._room.has_grown(row):
                if not self._drive_out(row.lane):
                    self._delivery.fail(row.request, NoKvLeft())
        self._cache.fit(self._pool.left)

    # The end of rows and requests.

    def _drop(self, row: Sequence) -> None:
        self._decoder.keep(row)
        self._decoder.leave(row)
        self._pool.free(row.key)

    def _forget(self, request: Request, *, is_sound: bool) -> None:
        """Nothing of the request stays, wherever its rows are, but what was read for it."""
        was = self._requests.pop(request.id, None)
        if was is not None and was.tally is not None:
            was.tally.tell()
        for row in [row for row in self._decoder.rows if row.request is request]:
            if is_sound:
                self._decoder.keep(row)
            self._decoder.leave(row)
        for choice in range(request.submit.choices):
            self._pool.free(key_of(request.id, choice))
        self._lanes.sweep(lambda prompt: prompt.request is request)
        if self._parked is not None and self._parked.request is request:
            if is_sound:
                self._cache.keep(self._parked)
            self._parked = None

    def _end_unanswered(self, prompt: Prompt) -> None:
        """Of a request that wants no token of an answer."""
        for row in prompt.rows:
            self._delivery.end(row, prompt.request.reason_at_limit())

    def _end_choice(self, request: Request, choice: int) -> None:
        prompts = [prompt for prompt in self._prompts() if prompt.request is request]
        row = next((r for r in self._rows() if r.request is request and r.choice == choice), None)
        if row is None:
            return  # it has just ended by itself
        self._drop(row)
        for prompt in prompts:
            prompt.rows = [other for other in prompt.rows if other is not row]
        self._lanes.sweep(lambda prompt: not prompt.rows)
        if self._parked is not None and not self._parked.rows:
            self._parked = None
        self._delivery.end(row, FinishReason.STOP)

    def _lose_rows(self, why: Exception) -> None:
        """After a failed step none of the rows that decode can be trusted."""
        self._cache.distrust()
        self._fail([row.request for row in self._decoder.clear()], why)

    def _fail(self, requests: Iterable[Request], why: Exception) -> None:
        gone = list(dict.fromkeys(requests))
        log.error("generation failed for %d requests", len(gone), exc_info=why)
        for request in gone:
            self._delivery.fail(request, GenerationFailed(str(why)))

    def _rows(self) -> list[Sequence]:
        waiting = [row for prompt in self._prompts() for row in prompt.rows]
        return [*self._decoder.rows, *waiting]

    def _prompts(self) -> list[Prompt]:
        return [*self._lanes, *([] if self._parked is None else [self._parked])]
