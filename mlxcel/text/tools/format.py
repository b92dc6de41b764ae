"""One form of writing calls: its markers, and how a text with them is taken apart."""

import json
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.request import Tool, ToolChoice
from mlxcel.text.tools.calls import ParsedCall, arguments_text
from mlxcel.text.tools.grammar import Wrapper, call_grammar
from mlxcel.text.tools.readers import Reader

_Texts = list[tuple[str, str]]
"""Name and arguments of each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A form that is the whole answer and has no marker. `shape` is a pattern of the `regex`
    module, which can tell whether a beginning may still become a match."""

    shape: Any
    reader: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`broken` is markup that is no call, as it stood in the text."""

    before: str
    """All text before the first marker; the whole text when there is none."""
    calls: tuple[ParsedCall, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    name: str
    start: str
    end: str
    """"": none; a call ends where its JSON does."""
    markers: tuple[str, ...]
    """Texts of the markup that may be special tokens, which a detokenizer must not hide."""
    reader: Reader = field(repr=False)
    json_lead: re.Pattern[str] | None = None
    """What stands between `start` and the JSON, which may hold markers and knows its own end."""
    bare: Bare | None = None
    wrapper: Wrapper | None = None
    """Where a call is JSON in a fixed wrapper."""

    def parse(self, text: str, tools: Sequence[Tool]) -> tuple[ParsedCall, ...]:
        """All calls of a text, in order. Raises ValueError when it has none or a broken one."""
        reading = self.read(text, tools)
        if reading.broken or not reading.calls:
            raise ValueError(f"no whole {self.name} call in {text[:200]!r}")
        return reading.calls

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        """All calls of a text, and what looks like one and is not."""
        if self.bare is not None and self.bare.shape.fullmatch(text):
            found = _texts_of(self.bare.reader, text, tools)
            if found is not None:
                return Reading(before="", calls=_numbered(found))
        return self._read_marked(text, tools)

    def forced_grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, specials: Container[str] = frozenset()
    ) -> str | None:
        """What an answer under a forced choice has to be, in llguidance's form; None when only
        an instruction can ask for it.

        `specials` are the markers that are tokens to llguidance (`special_words`); a mapping to
        their ids is needed where such a marker is not in angle brackets.
        """
        if self.wrapper is None or not choice.is_forced:
            return None
        return call_grammar(self.wrapper, tools, choice, specials)

    def _read_marked(self, text: str, tools: Sequence[Tool]) -> Reading:
        place = text.find(self.start)
        if place == -1:
            return Reading(before=text)
        before, found, broken = text[:place], _Texts(), list[str]()
        while place != -1:
            calls, end = self._segment(text, place, tools)
            if calls is None:
                broken.append(text[place:end])
            else:
                found += calls
            place = text.find(self.start, end)
        return Reading(before=before, calls=_numbered(found), broken=tuple(broken))

    def _segment(self, text: str, place: int, tools: Sequence[Tool]) -> tuple[_Texts | None, int]:
        """The calls that begin with the marker at `place`, None if broken, and their end."""
        begin = place + len(self.start)
        if self.json_lead is not None:
            return self._json_segment(text, begin, tools)
        stop = text.find(self.end, begin)
        if stop == -1:
            return None, len(text)
        calls = _texts_of(self.reader, text[begin:stop], tools)
        # None of the starts before the last one has an end of its own.
        last = -1 if calls is not None else text.rfind(self.start, begin, stop)
        return calls, last if last != -1 else stop + len(self.end)

    def _json_segment(
        self, text: str, begin: int, tools: Sequence[Tool]
    ) -> tuple[_Texts | None, int]:
        """Markers inside the JSON are text, and when it is whole its end marker may be missing."""
        json_end = self._json_end(text, begin)
        inner = begin if json_end is None else json_end
        following = _find(text, self.start, inner)
        stop = _find(text, self.end, inner) if self.end else len(text)
        is_closed = stop < following
        end = stop + len(self.end) if is_closed else following
        if json_end is None:
            return None, end
        return _texts_of(self.reader, text[begin : stop if is_closed else following], tools), end

    def _json_end(self, text: str, begin: int) -> int | None:
        lead = self.json_lead and self.json_lead.match(text, begin)
        if not lead:
            return None
        try:
            return json.JSONDecoder().raw_decode(text, lead.end())[1]
        except (ValueError, RecursionError):
            return None


def _find(text: str, mark: str, begin: int) -> int:
    """Where it is, or where the text ends."""
    place = text.find(mark, begin)
    return len(text) if place == -1 else place


def _texts_of(reader: Reader, body: str, tools: Sequence[Tool]) -> _Texts | None:
    try:
        return [(name, arguments_text(arguments)) for name, arguments in reader(body, tools)]
    except (ValueError, RecursionError):
        return None


def _numbered(found: _Texts) -> tuple[ParsedCall, ...]:
    return tuple(
        ParsedCall(index=index, name=name, arguments=arguments)
        for index, (name, arguments) in enumerate(found)
    )
