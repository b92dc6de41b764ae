"""Which request has which slot, and the tokens each slot has served last.

The worker knows rows, not slots: ids are dealt out here, in the order in which rows begin.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from mlxcel.core.cache import CacheTag
from mlxcel.link.messages import RowEvent, RowStarted, RowTokens, Submit, pack_tokens


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
class _Served:
    """A request that runs, or the last one of a slot."""

    prompt: bytes
    tag: CacheTag | None
    output: "array[int]" = field(default_factory=lambda: array("i"))

    def stream(self) -> TokenStream:
        return TokenStream(tokens=self.prompt + pack_tokens(self.output), tag=self.tag)


@dataclass(slots=True)
class _Slot:
    holder: str | None = None
    """The id of the request that runs in it."""
    served: _Served | None = None


class SlotTable:
    """Owned by the event loop. A request is told by `took`, heard of, and gone by `left`; it has
    a slot from its first token on."""

    def __init__(self, count: Callable[[], int]) -> None:
        """`count` says how many slots there are; it grows once, when the worker is ready."""
        self._count = count
        self._slots: list[_Slot] = []
        self._running: dict[str, _Served] = {}
        self._seats: dict[str, _Slot] = {}
        self._standing: list[str] = []
        """Begun in the worker before the front has heard that another is over."""

    # What the service tells, in this order, for each request.

    def took(self, request_id: str, submit: Submit) -> None:
        self._running[request_id] = _Served(prompt=submit.tokens, tag=submit.cache)

    def heard(self, row: RowEvent) -> None:
        served = self._running.get(row.id)
        if served is None:
            return
        if isinstance(row, RowStarted):
            self._standing.append(row.id)
            self._seat()
        elif isinstance(row, RowTokens) and row.choice == 0:
            served.output.extend(row.ids)

    def left(self, request_id: str) -> None:
        """A no-op for one that is not there."""
        self._running.pop(request_id, None)
        if request_id in self._standing:
            self._standing.remove(request_id)
        if (slot := self._seats.pop(request_id, None)) is not None:
            slot.holder = None
            self._seat()

    # What the routes ask.

    @property
    def count(self) -> int:
        return self._count()

    def is_busy(self, slot: int) -> bool:
        return self._at(slot).holder is not None

    def stream(self, slot: int) -> TokenStream:
        """Empty for one that has served nobody."""
        served = self._at(slot).served
        return TokenStream() if served is None else served.stream()

    def put(self, slot: int, stream: TokenStream) -> None:
        """As if the slot had served it. The slot must not be busy."""
        self._at(slot).served = _Served(prompt=stream.tokens, tag=stream.tag)

    def erase(self, slot: int) -> int:
        """Forgets its tokens; returns how many there were. The slot must not be busy."""
        tokens = self.stream(slot).count
        self._at(slot).served = None
        return tokens

    def _seat(self) -> None:
        """Whoever stands gets the free slot with the lowest id."""
        for slot in map(self._at, range(self.count)):
            if not self._standing:
                return
            if slot.holder is None:
                name = self._standing.pop(0)
                self._seats[name] = slot
                slot.holder, slot.served = name, self._running[name]

    def _at(self, slot: int) -> _Slot:
        while len(self._slots) <= slot:
            self._slots.append(_Slot())
        return self._slots[slot]
