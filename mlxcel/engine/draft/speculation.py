"""Which rows are asked for proposals in a step, and how many tokens they may propose."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from mlxcel.core.events import Drafted
from mlxcel.core.status import DraftInfo
from mlxcel.engine.draft.base import RowDraft
from mlxcel.engine.draft.diagnosis import Tally
from mlxcel.engine.draft.eligible import is_eligible
from mlxcel.engine.draft.heads import HiddenDrafter
from mlxcel.engine.draft.prices import Prices, worthwhile
from mlxcel.engine.draft.taps import whole
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.report import Report
from mlxcel.engine.sequence import Sequence as Row

log = logging.getLogger(__name__)

MakeDraft = Callable[[Row], RowDraft]
MakeTally = Callable[[Row], Tally]
WATCHED = 8
"""Steps between two shadow proposals of a drafter that has to work for them."""


class Policy(Protocol):
    """Whether drafting pays at all here, found out by measuring. A burst is the drafting of one
    row; times are those of whole steps, drafting included."""

    @property
    def is_enabled(self) -> bool: ...

    @property
    def wants_plain(self) -> bool:
        """The next step of a lone row is to be an ordinary one, and timed."""
        ...

    def begin(self) -> None: ...

    def round(self, ms: float, proposed: int, accepted: int) -> None: ...

    def plain(self, ms: float) -> None: ...

    def end(self) -> None: ...


class Always:
    """Nobody measures."""

    is_enabled = True
    wants_plain = False

    def begin(self) -> None: ...

    def round(self, ms: float, proposed: int, accepted: int) -> None: ...

    def plain(self, ms: float) -> None: ...

    def end(self) -> None: ...


class Speculation:
    """Owned by the decode loop. `max_batch`: with more rows than that in the batch nobody is
    asked. `window`: tokens that a row may hold; 0: any number. `chunk`: tokens of a text whose
    hidden states a drafter reads at once; 0: all. `is_head`: it reads them. `tally`: what becomes
    of each request's proposals is to be told. `prices`: rows are held back while a round is not
    worth its time; None: whatever it takes."""

    def __init__(
        self,
        info: DraftInfo,
        make: MakeDraft,
        *,
        max_batch: int,
        window: int,
        report: Report,
        is_head: bool = False,
        chunk: int = 0,
        policy: Policy | None = None,
        tally: MakeTally | None = None,
        prices: Prices | None = None,
    ) -> None:
        self.info = info
        self._make = make
        self._report = report
        self._max_batch = max_batch
        self._window = window
        self._is_head = is_head
        self._chunk = chunk
        self._policy = policy or Always()
        self._prices = prices
        self._burst: Row | None = None
        self._tally = tally

    def enter(self, row: Row) -> None:
        """A row begins to decode. One that comes back has lost its drafter for good."""
        is_new = not row.output and not row.has_forgotten
        is_asked = is_new and is_eligible(row, is_head=self._is_head)
        row.draft = self._make(row) if is_asked else None
        if is_asked and self._tally is not None and row.request.tally is None:
            row.request.tally = self._tally(row)

    def leave(self, row: Row) -> None:
        """It decodes no more."""
        row.draft = None
        if row is self._burst:
            self._burst = None
            self._policy.end()

    def needs_tokens(self, rows: Sequence[Row]) -> bool:
        """Whether some row is to be asked before its next step is started, with all it has said
        known."""
        return any(not draft.is_patient for _, _, draft in self._gated(rows))

    def wants_all_read(self, rows: Sequence[Row]) -> bool:
        """Whether some row is about to be asked whose drafter would work in vain while a token is
        unread."""
        gated = self._gated(rows)
        if all(draft.drafter.is_free for _, _, draft in gated):
            return False
        counts = self._counts(rows, gated)
        pairs = zip(gated, counts, strict=True)
        return any(count > 0 and not draft.drafter.is_free for (_, _, draft), count in pairs)

    def ask(self, rows: Sequence[Row], kv: KVBatch) -> dict[Row, list[int]]:
        """What rows propose to say next, those alone that do; nothing of a row whose step is to be
        timed without. Asks the same again when nothing was said in between."""
        found: dict[Row, list[int]] = {}
        gated = self._gated(rows)
        counts = self._counts(rows, gated)
        for (place, row, draft), count in zip(gated, counts, strict=True):
            if self._is_probed(rows, row):
                return {row: []}
            if count > 0 and (proposed := self._proposed(place, row, draft, count, kv)):
                found[row] = proposed
        return found

    def passed(self, rows: Sequence[Row], kv: KVBatch) -> None:
        """The step is an ordinary one: nobody has proposed anything."""
        for place, row, draft in self._gated(rows):
            draft.fruitless += 1
            is_paused = not draft.governor.budget
            # With its last token in flight a row has no part in the step.
            if row.request.tally is not None and row.started < row.request.limit:
                row.request.tally.passed(is_paused=is_paused or draft.is_held)
            if is_paused:
                draft.governor.passed()
            draft.prospects.rested += draft.is_held
            if draft.governor.watches or (draft.is_held and draft.drafter.is_free):
                self._watch(place, row, draft, kv)

    def took(self, rows: Sequence[Row], proposed: Sequence[int], accepted: Sequence[int]) -> None:
        """After a round: of each row, how many tokens it had proposed, and how many of them came
        true."""
        for row, tried, kept in zip(rows, proposed, accepted, strict=True):
            if tried:
                self._took(row, tried, kept)
            elif row.request.tally is not None and row.draft is not None:
                row.request.tally.passed(is_paused=not row.draft.governor.budget)

    def lasted(
        self, ms: float, rows: Sequence[Row], proposed: Sequence[int], accepted: Sequence[int]
    ) -> None:
        """A round, or a step without proposals in its place, from asking to knowing."""
        if self._prices is not None:
            self._prices.lasted(ms, len(rows), 1 + max(proposed))
        if len(rows) != 1:
            return
        if not proposed[0]:
            self._policy.plain(ms)
            return
        if self._burst is None:
            self._burst = rows[0]
            self._policy.begin()
        self._policy.round(ms, proposed[0], accepted[0])

    def stepped(self, ms: float, rows: int) -> None:
        """An ordinary step, from the call to the tokens of the one before."""
        if self._prices is not None:
            self._prices.lasted(ms, rows, 1)

    def _took(self, row: Row, proposed: int, accepted: int) -> None:
        draft = row.draft
        assert draft is not None
        draft.fruitless = 0
        if row.request.tally is not None:
            row.request.tally.took(proposed, accepted)
        draft.governor.took(accepted)
        draft.prospects.took(proposed, accepted)
        was = row.request.drafted or Drafted(kind=self.info.kind, rounds=0, proposed=0, accepted=0)
        row.request.drafted = Drafted(
            kind=self.info.kind,
            rounds=was.rounds + 1,
            proposed=was.proposed + proposed,
            accepted=was.accepted + accepted,
        )
        self._report.draft_rounds += 1
        self._report.draft_proposed += proposed
        self._report.draft_accepted += accepted

    def _gated(self, rows: Sequence[Row]) -> list[tuple[int, Row, RowDraft]]:
        """Their places, the rows, their drafters."""
        if len(rows) > self._max_batch or not self._policy.is_enabled:
            return []
        return [(place, row, row.draft) for place, row in enumerate(rows) if row.draft is not None]

    def _counts(self, rows: Sequence[Row], gated: Sequence[tuple[int, Row, RowDraft]]) -> list[int]:
        """How many tokens each of the rows may propose."""
        counts = [max(0, min(draft.governor.budget, self._room(row))) for _, row, draft in gated]
        most = max(counts, default=0)
        if self._prices is not None and most:
            drafts = [draft for _, _, draft in gated]
            most = self._worthwhile(self._prices, len(rows), drafts, counts)
        for (_, _, draft), count in zip(gated, counts, strict=True):
            draft.is_held = most == 0 < count
        return [min(count, most) for count in counts]

    def _worthwhile(
        self, prices: Prices, rows: int, drafts: Sequence[RowDraft], counts: Sequence[int]
    ) -> int:
        if prices.wants_plain(rows):
            return 0
        price = prices.of(rows)
        if price is None:
            return max(counts)
        is_due = any(one.prospects.is_rested and n for one, n in zip(drafts, counts, strict=True))
        rates = [draft.prospects.rate for draft in drafts]
        return worthwhile(rates, counts, price, least=1 if is_due else 0)

    def _is_probed(self, rows: Sequence[Row], row: Row) -> bool:
        return len(rows) == 1 and row is self._burst and self._policy.wants_plain

    def _room(self, row: Row) -> int:
        """One token of a round is the target's own."""
        room = row.request.limit - row.started - 1
        if self._window:
            room = min(room, self._window - row.kv_length - 1)
        free = None if row.steering is None else row.steering.free
        return room if free is None else min(room, free)

    def _proposed(
        self, place: int, row: Row, draft: RowDraft, count: int, kv: KVBatch
    ) -> list[int]:
        """A drafter that fails costs its row no more than the drafts."""
        try:
            _hear(row, draft)
            if self._is_head and not self._look(place, draft, kv):
                return []
            proposed = draft.drafter.propose(count)
            draft.odds = draft.drafter.odds
            assert draft.odds is None or len(draft.odds) == len(proposed)
            return proposed[:count]
        except Exception:
            log.exception("a drafter failed: its row goes on without")
            row.draft = None
            return []

    def _look(self, place: int, draft: RowDraft, kv: KVBatch) -> bool:
        """The hidden states of all tokens but the last, a chunk an ask. True: it has seen all."""
        last = draft.heard - 1
        stop = min(last, draft.seen + self._chunk) if self._chunk else last
        if stop > draft.seen:
            cast(HiddenDrafter, draft.drafter).look(whole(*kv.seen(place, draft.seen, stop)))
            draft.seen = stop
        return stop == last

    def _watch(self, place: int, row: Row, draft: RowDraft, kv: KVBatch) -> None:
        """Shadow proposals cost no step of the model."""
        shadow, place_in_output = draft.shadow, draft.shadow_at - len(row.base)
        if shadow and len(row.output) > place_in_output:
            draft.shadow = []
            is_right = row.output[place_in_output] == shadow[0]
            draft.prospects.came_true(is_right, 1)
            if draft.governor.watches:
                draft.governor.came_true(is_right)
            if row.request.tally is not None:
                row.request.tally.came_true(is_right)
        if draft.drafter.is_free or draft.fruitless % WATCHED == 0:
            draft.shadow = self._proposed(place, row, draft, 1, kv)
            draft.shadow_at = draft.heard


def _hear(row: Row, draft: RowDraft) -> None:
    if not draft.heard:
        draft.drafter.hear(row.base)
        draft.heard = len(row.base)
    news = row.output[draft.heard - len(row.base) :]
    draft.drafter.hear(news)
    draft.heard += len(news)
