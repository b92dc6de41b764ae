"""Splits the raw text of an answer into what is thought and what is said.

Pure and incremental: the result does not depend on how the text was cut. Nothing is lost: the
parts joined are the raw text, and whoever shows them leaves out what it does not want.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mlxcel.text.tails import begins_at


class Part(Enum):
    REASONING = "reasoning"
    CONTENT = "content"
    MARKUP = "markup"
    """Markers, and the white space right around them."""


@dataclass(frozen=True, slots=True)
class Segment:
    part: Part
    text: str
    """Never empty."""


class ReasoningSplitter:
    """Holds back what may become a marker, and white space that a marker may swallow.

    White space goes with the markers: all of it inside a block beside them, after a block, and
    between the start of the answer and its first block.
    """

    def __init__(
        self,
        opening: str,
        closing: str,
        *,
        is_open: bool = False,
        is_fresh: bool = True,
        hides_closing: bool = False,
    ) -> None:
        """`is_open`: the prompt ends inside a block. `is_fresh`: the text begins here, it does
        not go on in words of the prompt. `hides_closing`: a closing marker is markup also where
        no block is open."""
        self._opening, self._closing = opening, closing
        self._marks = {
            True: (closing,),
            False: (opening, closing) if hides_closing else (opening,),
        }
        self._is_open = is_open
        self._held = ""
        self._is_fresh = is_fresh
        """Nothing but white space since the last marker."""
        self._has_marked = is_open
        """A marker went before, be it in the prompt."""

    def feed(self, text: str) -> list[Segment]:
        if text and self._is_plain(text):
            return [Segment(self._part, text)]
        return _joined(self._read(self._held + text, is_last=False))

    def finish(self) -> list[Segment]:
        """No more text will come: what was held back, decided."""
        return _joined(self._read(self._held, is_last=True))

    def _is_plain(self, text: str) -> bool:
        """Nothing to hold back or to take out: so it is with most tokens."""
        if self._held or self._is_fresh or (self._is_open and text[-1].isspace()):
            return False
        return not any(mark[0] in text for mark in self._marks[self._is_open])

    def _read(self, text: str, *, is_last: bool) -> Iterator[tuple[Part, str]]:
        while (found := self._first_mark(text)) is not None:
            start, mark = found
            yield from self._before_mark(text[:start])
            yield Part.MARKUP, mark
            self._is_open = mark == self._opening
            self._is_fresh = self._has_marked = True
            text = text[start + len(mark) :]
        yield from self._plain(text, is_last=is_last)

    def _first_mark(self, text: str) -> tuple[int, str] | None:
        found = ((text.find(mark), mark) for mark in self._marks[self._is_open])
        return min((hit for hit in found if hit[0] >= 0), default=None)

    def _before_mark(self, text: str) -> Iterator[tuple[Part, str]]:
        """Up to a marker: white space at both ends goes with the markers, but for that which
        ends a text said before."""
        body = text.lstrip() if self._is_fresh else text
        yield self._of_space if body else Part.MARKUP, text[: len(text) - len(body)]
        kept = body.rstrip() if self._is_open else body
        yield self._part, kept
        yield Part.MARKUP, body[len(kept) :]

    def _plain(self, text: str, *, is_last: bool) -> Iterator[tuple[Part, str]]:
        body = text.lstrip() if self._is_fresh else text
        space = text[: len(text) - len(body)]
        cut = len(body) if is_last else self._certain(body)
        if cut == 0:
            self._held = "" if is_last else text
            if is_last:
                yield self._of_space, space
            return
        yield self._of_space, space
        yield self._part, body[:cut]
        self._is_fresh = False
        self._held = body[cut:]

    @property
    def _part(self) -> Part:
        return Part.REASONING if self._is_open else Part.CONTENT

    @property
    def _of_space(self) -> Part:
        """What white space before the first word is: an answer without a marker keeps it."""
        return Part.MARKUP if self._has_marked else Part.CONTENT

    def _certain(self, text: str) -> int:
        """How much of it no marker to come can change."""
        starts = (begins_at(text, mark) for mark in self._marks[self._is_open])
        cut = min((start for start in starts if start is not None), default=len(text))
        return len(text[:cut].rstrip()) if self._is_open else cut


def _joined(pieces: Iterator[tuple[Part, str]]) -> list[Segment]:
    """Neighbours of one kind become one; empty ones go."""
    segments: list[Segment] = []
    for part, text in pieces:
        if not text:
            continue
        if segments and segments[-1].part is part:
            segments[-1] = Segment(part, segments[-1].text + text)
        else:
            segments.append(Segment(part, text))
    return segments
