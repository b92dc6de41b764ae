"""Answers of /v1/chat/completions as a stream of chunks."""

from collections.abc import Iterator, Sequence
from typing import Any

from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
    TokenLogprobs,
    ToolCallDelta,
)
from mlxcel.protocols.base import Head, SseFrame
from mlxcel.protocols.openai.answer import (
    FINISH,
    only_body,
    reasoning_body,
    timings_body,
    usage_body,
)
from mlxcel.protocols.openai.errors import error_body
from mlxcel.protocols.openai.logprobs import logprobs_body

DONE = SseFrame(data="[DONE]")


class ChatEncoder:
    """Chunks of one stream. A failure is an error frame and the end: no `[DONE]`, no reason.

    The choice that ends last waits for `Finished`: its finish chunk carries the timings.
    """

    def __init__(
        self, head: Head, *, choices: int, include_usage: bool, reasoning_alias: str | None
    ) -> None:
        self._head = head
        self._choices = choices
        self._include_usage = include_usage
        self._alias = reasoning_alias
        self._running = choices
        self._last: ChoiceFinished | None = None

    def encode(self, event: Event) -> Iterator[SseFrame]:
        match event:
            case Accepted():
                for choice in range(self._choices):
                    yield self._delta(choice, {"role": "assistant"})
            case TextDelta():
                yield from self._text(event)
            case ReasoningDelta(text, choice, logprobs):
                yield self._delta(choice, reasoning_body(text, self._alias), logprobs)
            case ToolCallDelta():
                yield from self._call(event)
            case ChoiceFinished():
                yield from self._choice_finished(event)
            case Finished():
                yield from self._closing(event)
            case Failed(error):
                yield SseFrame(data=error_body(error))

    def _text(self, event: TextDelta) -> Iterator[SseFrame]:
        """Tokens without text of their own have a chunk each."""
        if event.text:
            yield self._delta(event.choice, {"content": event.text}, event.logprobs)
            return
        for token in event.logprobs:
            yield self._delta(event.choice, {"content": ""}, (token,))

    def _call(self, event: ToolCallDelta) -> Iterator[SseFrame]:
        """The name first, then all arguments at once."""
        named = {"id": event.call_id, "type": "function", "function": {"name": event.name}}
        for part in (named, {"function": {"arguments": event.arguments}}):
            yield self._delta(event.choice, {"tool_calls": [{"index": event.index} | part]})

    def _choice_finished(self, event: ChoiceFinished) -> Iterator[SseFrame]:
        self._running -= 1
        if self._running:
            yield SseFrame(data=self._finish(event))
        else:
            self._last = event

    def _closing(self, event: Finished) -> Iterator[SseFrame]:
        assert self._last is not None, "every choice ends before the request does"
        timings = timings_body(event.usage, event.timings)
        yield SseFrame(data=self._finish(self._last) | {"timings": timings})
        if self._include_usage:
            yield SseFrame(data=self._chunk([]) | {"usage": usage_body(event.usage)})
        yield DONE

    def _finish(self, event: ChoiceFinished) -> dict[str, Any]:
        is_thought = event.reasoning_only
        choice = _choice(event.choice, {}, FINISH[event.reason], ()) | only_body(is_thought)
        return self._chunk([choice]) | only_body(is_thought and self._choices == 1)

    def _delta(
        self, choice: int, delta: dict[str, Any], logprobs: Sequence[TokenLogprobs] = ()
    ) -> SseFrame:
        return SseFrame(data=self._chunk([_choice(choice, delta, None, logprobs)]))

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
            "system_fingerprint": None,
            "choices": choices,
        }


def _choice(
    index: int, delta: dict[str, Any], reason: str | None, logprobs: Sequence[TokenLogprobs]
) -> dict[str, Any]:
    return {
        "index": index,
        "delta": delta,
        "finish_reason": reason,
        "logprobs": logprobs_body(logprobs) if logprobs else None,
    }
