"""What wakes a constraint that sleeps: a token, or an expression over the text said so far.

Expressions are RE2, whose time is linear in the text; the text looked at and the size of the
expressions (checked where a request comes in) bound what a token can cost: some 10 us, where an
expression is made to be slow tens of milliseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import re2

from mlxcel.core.steering import Trigger

LOOKED_BACK = 4096
"""Bytes in which an expression is looked for."""
LOOKED_THROUGH = 32_768
"""Bytes an answer may have for an expression that has to match all of it."""
KEPT = 128
"""Expressions compiled last."""

Ids = Sequence[int]


class Speech(Protocol):
    """The model's tokens as bytes, and back."""

    def decode_bytes(self, tokens: list[int]) -> bytes: ...

    def tokenize_bytes(self, utf8bytes: bytes) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Of what was said before a constraint binds."""

    token: int | None
    """None: the end of one."""
    text: bytes


class Waker:
    """Mutable, of one answer. Hears what is said until it finds a beginning."""

    def __init__(self, triggers: Sequence[Trigger], text_of: Callable[[int], bytes]) -> None:
        self._tokens = {token for trigger in triggers for token in trigger.tokens}
        self._patterns = [
            (_compiled(trigger.pattern), trigger.is_full) for trigger in triggers if trigger.pattern
        ]
        self._text_of = text_of
        self._text = bytearray()
        self._said: list[tuple[int, int]] = []
        """Tokens, and where in the text each begins."""

    def restart(self) -> None:
        """What was heard so far counts no more."""
        self._text.clear()
        self._said.clear()

    def hear(self, token: int) -> list[Piece] | None:
        """What the constraint begins with, once it is found: to the end of what was said."""
        text = self._text_of(token)
        if token in self._tokens:
            return [Piece(token, text)]
        if not self._patterns:
            return None
        self._said.append((token, len(self._text)))
        self._text += text
        begins = [place for pattern in self._patterns if (place := self._found(*pattern)) >= 0]
        return self._since(min(begins)) if begins else None

    def _found(self, pattern: "re2._Regexp[bytes]", is_full: bool) -> int:
        """Where what counts of a match begins; -1: there is none."""
        size = len(self._text)
        if is_full:
            match = pattern.fullmatch(self._text) if size <= LOOKED_THROUGH else None
        else:
            match = pattern.search(self._text, max(0, size - LOOKED_BACK))
        if match is None:
            return -1
        groups = (match.start(group) for group in range(1, pattern.groups + 1))
        return next((place for place in groups if place >= 0), match.start())

    def _since(self, place: int) -> list[Piece]:
        ends = [begin for _, begin in self._said[1:]] + [len(self._text)]
        pieces: list[Piece] = []
        for (token, begin), end in zip(self._said, ends, strict=True):
            if begin >= place:
                pieces.append(Piece(token, bytes(self._text[begin:end])))
            elif end > place:
                pieces.append(Piece(None, bytes(self._text[place:end])))
        return pieces


def spelled(text: bytes, speech: Speech) -> list[int] | None:
    """Tokens that make up the text and are nothing but text; None: it has none such. (The
    tokenizer as a whole may take a word for a special token.)"""
    ids: list[int] = []
    for character in text.decode("utf-8", "surrogateescape"):  # or a byte of one that is cut
        ids += speech.tokenize_bytes(character.encode("utf-8", "surrogateescape"))
    return ids if speech.decode_bytes(ids) == text else None


@lru_cache(maxsize=KEPT)
def _compiled(pattern: str) -> "re2._Regexp[bytes]":
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern.encode(), options)
