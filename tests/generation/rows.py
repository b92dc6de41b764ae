"""Worker rows from what a model says, and what the events about them say."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from mlxcel.core.events import (
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from mlxcel.generation.assemble import Assembler, assembler
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.prepare import Prepared
from mlxcel.link.messages import (
    RowAccepted,
    RowEnded,
    RowEvent,
    RowFinished,
    RowStarted,
    RowTokens,
    Submit,
)
from tests.generation.speaking import asked

WORKER_TIMINGS = Timings(queued_ms=1.0, prompt_ms=2.0, decode_ms=3.0)
BEGUN: list[RowEvent] = [RowAccepted("r1"), RowStarted("r1", queued_ms=7.0, prompt_ms=8.0)]


class Clock:
    """Every reading is one second later."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def said(ids: Sequence[int], cuts: Iterable[int] = (), choice: int = 0) -> list[RowEvent]:
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < len(ids)}), len(ids)]
    parts = (list(ids[a:b]) for a, b in pairwise(bounds) if a < b)
    return [RowTokens(id="r1", ids=part, choice=choice) for part in parts]


def ended(choice: int = 0, reason: FinishReason = FinishReason.EOS) -> RowEnded:
    return RowEnded(id="r1", reason=reason, choice=choice)


def finished(tokens: int) -> RowFinished:
    usage = Usage(prompt_tokens=5, completion_tokens=tokens, cached_tokens=2)
    return RowFinished("r1", usage, WORKER_TIMINGS)


def whole(
    ids: Sequence[int], cuts: Iterable[int] = (), reason: FinishReason = FinishReason.EOS
) -> list[RowEvent]:
    """One answer, from the first row to the last."""
    return [*BEGUN, *said(ids, cuts), ended(reason=reason), finished(len(ids))]


def new_assembler(
    model: ChatModel,
    *,
    is_open: bool = False,
    continues: bool = False,
    echoed: str = "",
    **changes: Any,
) -> Assembler:
    request = asked(**changes)
    submit = Submit(
        id="r1", tokens=b"", sampling=request.sampling, max_tokens=request.max_tokens, eos_ids=()
    )
    prepared = Prepared(
        submit=submit,
        prompt_tokens=5,
        is_open=is_open,
        continues=continues,
        echoed=echoed,
        request=request,
    )
    return assembler(request, prepared, model, clock=Clock())


def play(answer: Assembler, rows: Iterable[RowEvent]) -> list[Event]:
    """Every row until the assembler is done, as the service feeds it."""
    events: list[Event] = []
    for row in rows:
        if not answer.is_done:
            events.extend(answer.take(row))
    return events


def text_of(events: Iterable[Event], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.choice == choice)


def reasoning_of(events: Iterable[Event], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, ReasoningDelta) and e.choice == choice)


def calls_of(events: Iterable[Event]) -> list[tuple[str, str]]:
    return [(e.name, e.arguments) for e in events if isinstance(e, ToolCallDelta)]


def end_of(events: Iterable[Event], choice: int = 0) -> ChoiceFinished:
    ends = [e for e in events if isinstance(e, ChoiceFinished) and e.choice == choice]
    assert len(ends) == 1
    return ends[0]


def finish_of(events: Sequence[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]
