"""Takes the markup of calls out of an answer that arrives in pieces.

The result does not depend on how the text was cut. Knows nothing of events and choices of a
request; one filter serves one answer.
"""

from collections.abc import Sequence

from mlxcel.core.request import Tool, ToolChoice, ToolMode
from mlxcel.text.tails import begins_at
from mlxcel.text.tools.calls import ParsedCall
from mlxcel.text.tools.format import Reading, ToolFormat


class ToolFilter:
    """Holds back what may begin a marker, and white space, which a marker swallows. From the
    first marker on everything is held: calls are read when the answer is whole."""

    def __init__(self, format: ToolFormat, tools: Sequence[Tool], choice: ToolChoice) -> None:
        """Without tools, or with calls ruled out, all text is content."""
        self._format = format
        self._tools = tools
        self._wanted = {t.name for t in tools if choice.mode is not ToolMode.NAMED}
        if choice.mode is ToolMode.NAMED:
            self._wanted = {choice.name}
        self._is_off = not tools or choice.mode is ToolMode.NONE
        self._held: list[str] = []
        self._has_markup = False
        self._may_be_bare = format.bare is not None
        self.lost_half = False
        """A call that was begun after whole ones, and cut off, is told nowhere."""

    def feed(self, text: str) -> str:
        """The content that may be shown."""
        if self._is_off:
            return text
        self._held.append(text)
        if self._has_markup:
            return ""
        return self._show("".join(self._held))

    def finish(self, *, is_cut: bool = False) -> tuple[str, tuple[ParsedCall, ...]]:
        """No more text will come: the content that was held back, and the calls. `is_cut`: the
        model had more to say."""
        held = "".join(self._held)
        self._held = []
        reading = Reading(before=held) if self._is_off else self._format.read(held, self._tools)
        if not reading.calls:
            return held, ()
        wanted = tuple(call for call in reading.calls if call.name in self._wanted)
        broken = self._without_half(held, reading.broken) if is_cut else reading.broken
        if not broken:
            return reading.before.rstrip(), wanted
        return reading.before + "".join(broken), wanted

    def _without_half(self, held: str, broken: tuple[str, ...]) -> tuple[str, ...]:
        """The broken markup but for a call that the end of the text cuts off."""
        end = self._format.end
        if broken and held.endswith(broken[-1]) and not (end and broken[-1].endswith(end)):
            self.lost_half = True
            return broken[:-1]
        self.lost_half = begins_at(held, self._format.start) is not None
        return broken

    def _show(self, text: str) -> str:
        if self._waits_for_bare(text):
            self._held = [text]
            return ""
        self._has_markup = self._format.start in text
        find = str.find if self._has_markup else begins_at
        shown = text[: find(text, self._format.start)].rstrip()
        self._held = [text[len(shown) :]]
        return shown

    def _waits_for_bare(self, text: str) -> bool:
        """Whether the whole answer may be calls without a marker."""
        bare = self._format.bare
        if bare is None or not self._may_be_bare:
            return False
        match = bare.shape.fullmatch(text, partial=True)
        self._may_be_bare = match is not None
        self._has_markup = match is not None and not match.partial
        return self._may_be_bare
