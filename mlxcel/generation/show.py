"""From the raw text of one choice to what a client is shown: thoughts, content, calls."""

import secrets
from collections.abc import Callable, Iterable, Iterator

from mlxcel.core.events import ReasoningDelta, TextDelta, ToolCallDelta
from mlxcel.generation.options import ReasoningFormat
from mlxcel.text.reasoning import Part, ReasoningSplitter, Segment
from mlxcel.text.tools.filter import ToolFilter

Delta = TextDelta | ReasoningDelta
NewId = Callable[[], str]


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class Presenter:
    """Holds back what may become markup. Calls are looked for in content only, never in thoughts,
    and told at the end."""

    def __init__(
        self,
        choice: int,
        *,
        splitter: ReasoningSplitter | None,
        calls: ToolFilter | None,
        form: ReasoningFormat,
        new_id: NewId = new_call_id,
    ) -> None:
        """Without `splitter` all is content, without `calls` no call is looked for."""
        self._choice = choice
        self._splitter = splitter
        self._calls = calls
        self._form = form
        self._new_id = new_id
        self._has_thought = False
        self._has_answered = False

    @property
    def is_reasoning_only(self) -> bool:
        return self._has_thought and not self._has_answered

    @property
    def lost_half_call(self) -> bool:
        """A call was cut off behind whole ones."""
        return self._calls is not None and self._calls.lost_half

    def feed(self, text: str) -> list[Delta]:
        if self._splitter is None:
            return self._deltas([Segment(Part.CONTENT, text)] if text else [])
        return self._deltas(self._splitter.feed(text))

    def finish(self, *, is_cut: bool = False) -> list[Delta | ToolCallDelta]:
        """The rest, and the calls, last. `is_cut`: a limit ended the answer."""
        rest = [] if self._splitter is None else self._splitter.finish()
        said: list[Delta | ToolCallDelta] = [*self._deltas(rest)]
        if self._calls is None:
            return said
        tail, calls = self._calls.finish(is_cut=is_cut)
        said += self._merged([(TextDelta, tail)])
        said += (
            ToolCallDelta(call.index, self._new_id(), call.name, call.arguments, self._choice)
            for call in calls
        )
        self._has_answered = self._has_answered or bool(calls)
        return said

    def _deltas(self, segments: Iterable[Segment]) -> list[Delta]:
        return self._merged(shown for segment in segments for shown in self._shown(segment))

    def _shown(self, segment: Segment) -> Iterator[tuple[type[Delta], str]]:
        if segment.part is Part.CONTENT:
            yield TextDelta, segment.text if self._calls is None else self._calls.feed(segment.text)
            return
        if segment.part is Part.REASONING and self._form is not ReasoningFormat.NONE:
            yield ReasoningDelta, segment.text
        if self._form.shows_markers:
            yield TextDelta, segment.text

    def _merged(self, shown: Iterable[tuple[type[Delta], str]]) -> list[Delta]:
        """Neighbours of one kind become one; empty ones go."""
        deltas: list[Delta] = []
        for kind, text in shown:
            if not text:
                continue
            self._has_thought |= kind is ReasoningDelta
            self._has_answered |= kind is TextDelta
            if deltas and type(deltas[-1]) is kind:
                text = deltas.pop().text + text
            deltas.append(kind(text, self._choice))
        return deltas
