"""Thoughts of earlier answers, kept for clients that send back the words alone (engine contract,
cache 11): with them an earlier turn reads as it was written, and its KV is found again.

A turn is known by all that stands before it and by its words. Thoughts that were put back count
as having stood there.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Self

from mlxcel.core.request import Message

MAX_ENTRIES = 4096
LARGEST_SHARE = 8
"""One trace takes at most this part of the bytes."""


class ReasoningEcho:
    """May be used from several threads: prompts are made on some, answers end on another."""

    def __init__(self, *, max_bytes: int, max_entries: int = MAX_ENTRIES) -> None:
        """`max_bytes` bounds the thoughts as UTF-8; 0: nothing is kept."""
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._kept: OrderedDict[bytes, str] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: bytes) -> str | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def keep(self, key: bytes, reasoning: str) -> None:
        size = _size(reasoning)
        if not 0 < size <= self._max_bytes // LARGEST_SHARE:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = reasoning
            self._bytes += size
            while self._bytes > self._max_bytes or len(self._kept) > self._max_entries:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        self._bytes -= _size(self._kept.pop(key, ""))


@dataclass(frozen=True, slots=True)
class Trail:
    """What stands before a turn, as a digest."""

    digest: bytes

    @classmethod
    def start(cls, *parts: bytes) -> Self:
        """`parts` tell apart what is never shared: template, tools, session."""
        return cls(
            hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
        )

    def then(self, message: Message) -> "Trail":
        return Trail(hashlib.sha256(self.digest + _written(message)).digest())

    def key(self, text: str) -> bytes:
        """Of the answer with these words."""
        return hashlib.sha256(b"answer" + self.digest + text.encode()).digest()


def with_thoughts(
    messages: Sequence[Message], trail: Trail, echo: ReasoningEcho
) -> tuple[tuple[Message, ...], Trail]:
    """The messages with the thoughts that are known, and what stands before the next answer."""
    told = []
    for message in messages:
        if message.role == "assistant" and message.text and not message.reasoning:
            message = _recalled(message, trail, echo)
        trail = trail.then(message)
        told.append(message)
    return tuple(told), trail


def _recalled(message: Message, trail: Trail, echo: ReasoningEcho) -> Message:
    thoughts = None if message.calls else echo.find(trail.key(message.text))
    return message if thoughts is None else replace(message, reasoning=thoughts)


def _written(message: Message) -> bytes:
    calls = [(call.id, call.name, call.arguments) for call in message.calls]
    parts = (message.role, message.text, message.name, message.reasoning, calls, message.call_id)
    return json.dumps(parts, ensure_ascii=True).encode()


def _size(text: str) -> int:
    return len(text.encode())
