"""Which request has which slot, and what each slot has served last.

The worker knows rows, not slots: ids are dealt out here, in the order in which rows begin.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mlxcel.core.cache import CacheTag
from mlxcel.core.request import NO_CHAT, GenerationRequest
from mlxcel.link.messages import (
    RowEnded,
    RowEvent,
    RowFinished,
    RowProgress,
    RowPrompt,
    RowStarted,
    RowTokens,
    Submit,
    pack_tokens,
)

PROGRESS = (RowProgress, RowPrompt, RowStarted)
"""The first of these says that the worker has given a request a row."""
NO_SLOT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStream:
    """A prompt and the answer to it, packed by `pack_tokens`. Of several answers the first."""

    tokens: bytes = b""
    tag: CacheTag | None = None
    """What its KV is kept under; None: it was read cold."""

    @property
    def count(self) -> int:
        return len(self.tokens) // 4


@dataclass(slots=True, kw_only=True)
class Served:
    """A request that runs, or the last one of a slot. Of several answers the first counts."""

    prompt: bytes
    tag: CacheTag | None
    request: GenerationRequest | None = None
    task: int | None = None
    """None: put there from a file, or no slot yet."""
    cached: int = 0
    output: "array[int]" = field(default_factory=lambda: array("i"))
    is_over: bool = False

    def stream(self) -> TokenStream:
        return TokenStream(tokens=self.prompt + pack_tokens(self.output), tag=self.tag)

    def hear(self, row: RowEvent) -> None:
        match row:
            case RowProgress(cached=cached):
                self.cached = cached
            case RowStarted(cache=report) if report is not None:
                self.cached = report.reused
            case RowTokens(choice=0, ids=ids):
                self.output.extend(ids)
            case RowEnded(choice=0) | RowFinished():
                self.is_over = True


@dataclass(slots=True)
class _Slot:
    holder: str | None = None
    """The id of the request that runs in it."""
    served: Served | None = None


class SlotTable:
    """Owned by the event loop. A request is told by `took`, heard of, and gone by `left`; it has
    a slot from the first sign of its row on."""

    def __init__(self, count: Callable[[], int]) -> None:
        """`count` says how many slots there are; it grows once, when the worker is ready."""
        self._count = count
        self._slots: list[_Slot] = []
        self._running: dict[str, Served] = {}
        self._seats: dict[str, int] = {}
        self._standing: list[str] = []
        """Begun in the worker before the front has heard that another is over."""
        self._tasks = 0

    # What the service tells, in this order, for each request.

    def took(
        self, request_id: str, submit: Submit, request: GenerationRequest | None = None
    ) -> None:
        # What was asked for is kept, not a conversation of megabytes.
        asked = None if request is None else replace(request, prompt=NO_CHAT)
        self._running[request_id] = Served(prompt=submit.tokens, tag=submit.cache, request=asked)

    def heard(self, row: RowEvent) -> None:
        served = self._running.get(row.id)
        if served is None:
            return
        served.hear(row)
        if isinstance(row, PROGRESS) and row.id not in self._seats:
            if row.id not in self._standing:
                self._standing.append(row.id)
            self._seat()

    def left(self, request_id: str) -> None:
        """A no-op for one that is not there."""
        served = self._running.pop(request_id, None)
        if served is not None:
            served.is_over = True
        if request_id in self._standing:
            self._standing.remove(request_id)
        if (slot := self._seats.pop(request_id, None)) is not None:
            self._at(slot).holder = None
            self._seat()

    def slot_of(self, request_id: str) -> int:
        """NO_SLOT for one that has none, or has none any more."""
        return self._seats.get(request_id, NO_SLOT)

    # What the routes ask.

    @property
    def count(self) -> int:
        return self._count()

    def is_busy(self, slot: int) -> bool:
        return self._at(slot).holder is not None

    def served(self, slot: int) -> Served | None:
        """None for one that has served nobody, and after `erase`."""
        return self._at(slot).served

    def stream(self, slot: int) -> TokenStream:
        """Empty for one that has served nobody."""
        served = self._at(slot).served
        return TokenStream() if served is None else served.stream()

    def put(self, slot: int, stream: TokenStream) -> None:
        """As if the slot had served it. The slot must not be busy."""
        self._at(slot).served = Served(prompt=stream.tokens, tag=stream.tag, is_over=True)

    def erase(self, slot: int) -> int:
        """Forgets its tokens; returns how many there were. The slot must not be busy."""
        tokens = self.stream(slot).count
        self._at(slot).served = None
        return tokens

    def _seat(self) -> None:
        """Whoever stands gets the free slot with the lowest id."""
        for number in range(self.count):
            if not self._standing:
                return
            slot = self._at(number)
            if slot.holder is None:
                name = self._standing.pop(0)
                self._seats[name] = number
                slot.holder, slot.served = name, self._running[name]
                slot.served.task = self._tasks
                self._tasks += 1

    def _at(self, slot: int) -> _Slot:
        while len(self._slots) <= slot:
            self._slots.append(_Slot())
        return self._slots[slot]
