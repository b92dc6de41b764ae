"""An answer in one piece, for requests that are not streamed."""

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from mlxcel.core.answer import Answer, Choice
from mlxcel.core.errors import GenerationFailed, RemoteError
from mlxcel.core.events import (
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    PromptScored,
    PromptToken,
    ReasoningDelta,
    TextDelta,
    TokenLogprobs,
    ToolCallDelta,
)
from mlxcel.core.request import ToolCall


async def collect(events: AsyncIterator[Event]) -> Answer:
    """Raises the error of a Failed event, and whatever refuses the request."""
    drafts = Drafts()
    async for event in events:
        drafts.take(event)
        match event:
            case Finished(usage=usage, timings=timings, slot=slot):
                return Answer(choices=drafts.ended(), usage=usage, timings=timings, slot=slot)
            case Failed(error=error):
                raise RemoteError(error)
    raise GenerationFailed("the events ended without a finish")


class Drafts:
    """The choices of one request, as far as they were told."""

    def __init__(self) -> None:
        self._drafts: defaultdict[int, _Draft] = defaultdict(_Draft)
        self._ended: dict[int, Choice] = {}

    def take(self, event: Event) -> None:
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                self._drafts[event.choice].take(event)
            case PromptScored(tokens=tokens, choice=choice):
                self._drafts[choice].prompt = tokens
            case ChoiceFinished():
                self._ended[event.choice] = self._drafts[event.choice].finish(event)

    def ended(self) -> tuple[Choice, ...]:
        """In their order."""
        return tuple(choice for _, choice in sorted(self._ended.items()))


@dataclass(slots=True)
class _Draft:
    """One choice, as far as it was told."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    prompt: tuple[PromptToken, ...] = ()

    def take(self, delta: TextDelta | ReasoningDelta | ToolCallDelta) -> None:
        if isinstance(delta, ToolCallDelta):
            call = ToolCall(id=delta.call_id, name=delta.name, arguments=delta.arguments)
            self.calls.append(call)
            return
        (self.text if isinstance(delta, TextDelta) else self.reasoning).append(delta.text)
        self.logprobs += delta.logprobs
        if isinstance(delta, TextDelta):
            self.ids += delta.ids

    def finish(self, end: ChoiceFinished) -> Choice:
        return Choice(
            reason=end.reason,
            text="".join(self.text),
            reasoning="".join(self.reasoning),
            calls=tuple(self.calls),
            logprobs=tuple(self.logprobs),
            matched_stop=end.matched_stop,
            reasoning_only=end.reasoning_only,
            ids=tuple(self.ids),
            prompt=self.prompt,
        )
