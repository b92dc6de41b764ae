"""Which rows are asked for proposals in a step, and how many tokens they may propose."""

import logging
from collections.abc import Callable, Sequence

from mlxcel.core.events import Drafted
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.status import DraftInfo
from mlxcel.engine.draft.base import RowDraft
from mlxcel.engine.report import Report
from mlxcel.engine.sampling.adaptive import is_adaptive
from mlxcel.engine.sampling.mirostat import is_mirostat
from mlxcel.engine.sequence import Sequence as Row

log = logging.getLogger(__name__)

MakeDraft = Callable[[Row], RowDraft]


class Speculation:
    """Owned by the decode loop. `max_batch`: with more rows than that in the batch nobody is
    asked. `window`: tokens that a row may hold; 0: any number."""

    def __init__(
        self, info: DraftInfo, make: MakeDraft, *, max_batch: int, window: int, report: Report
    ) -> None:
        self.info = info
        self._make = make
        self._report = report
        self._max_batch = max_batch
        self._window = window

    def enter(self, row: Row) -> None:
        """A row begins to decode. One that comes back has lost its drafter for good."""
        is_new = not row.output and not row.has_forgotten
        row.draft = self._make(row) if is_new and is_eligible(row) else None

    def needs_tokens(self, rows: Sequence[Row]) -> bool:
        """Whether some row is to be asked before its next step is started, with all it has said
        known."""
        return any(not draft.is_patient for _, draft in self._gated(rows))

    def ask(self, rows: Sequence[Row]) -> dict[Row, list[int]]:
        """What rows propose to say next, those alone that do. Asks the same again when nothing
        was said in between."""
        found = {}
        for row, draft in self._gated(rows):
            count = min(draft.governor.budget, self._room(row))
            if count > 0 and (proposed := self._proposed(row, draft, count)):
                found[row] = proposed
        return found

    def passed(self, rows: Sequence[Row]) -> None:
        """The step is an ordinary one: nobody has proposed anything."""
        for row, draft in self._gated(rows):
            draft.fruitless += 1
            if not draft.governor.budget:
                draft.governor.passed()
            if draft.governor.watches:
                self._watch(row, draft)

    def took(self, row: Row, proposed: int, accepted: int) -> None:
        """After a round."""
        draft = row.draft
        assert draft is not None
        draft.fruitless = 0
        draft.governor.took(accepted)
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

    def _gated(self, rows: Sequence[Row]) -> list[tuple[Row, RowDraft]]:
        if len(rows) > self._max_batch:
            return []
        return [(row, row.draft) for row in rows if row.draft is not None]

    def _room(self, row: Row) -> int:
        """One token of a round is the target's own."""
        room = row.request.limit - row.started - 1
        if self._window:
            room = min(room, self._window - row.kv_length - 1)
        free = None if row.steering is None else row.steering.free
        return room if free is None else min(room, free)

    def _proposed(self, row: Row, draft: RowDraft, count: int) -> list[int]:
        """A drafter that fails costs its row no more than the drafts."""
        try:
            _hear(row, draft)
            return draft.drafter.propose(count)[:count]
        except Exception:
            log.exception("a drafter failed: its row goes on without")
            row.draft = None
            return []

    def _watch(self, row: Row, draft: RowDraft) -> None:
        """Shadow proposals cost no step of the model, though one of a drafter that is a model."""
        shadow, before = draft.shadow, draft.heard
        draft.shadow = self._proposed(row, draft, 1)
        if shadow and draft.heard > before:
            draft.governor.came_true(row.output[-1] == shadow[0])


def is_eligible(row: Row) -> bool:
    """Whether the draws of a row can be foreseen: none depends on the tokens before it but
    through the model (speculative, 4)."""
    submit = row.request.submit
    if submit.constraint is not None or submit.top_logprobs is not None:
        return False
    return not feeds_back(row.sampling)


def feeds_back(sampling: SamplingParams) -> bool:
    return bool(
        sampling.history_width
        or (sampling.mirostat is not None and is_mirostat(sampling))
        or (sampling.adaptive is not None and is_adaptive(sampling))
    )


def _hear(row: Row, draft: RowDraft) -> None:
    if not draft.heard:
        draft.drafter.hear(row.base)
        draft.heard = len(row.base)
    news = row.output[draft.heard - len(row.base) :]
    draft.drafter.hear(news)
    draft.heard += len(news)
