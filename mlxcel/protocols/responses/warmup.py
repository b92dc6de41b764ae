"""A response that says nothing: its prompt is read, so that the next one begins sooner."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mlxcel.core.events import (
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from mlxcel.core.request import GenerationRequest, Message
from mlxcel.protocols.base import SseFrame, StreamEncoder

NOTHING_YET = Message(role="user")
"""Many templates want a turn of a user. What stands before an empty one in the prompt is the same
as before the first real one."""


def warming(request: GenerationRequest) -> GenerationRequest:
    """A prompt is only read for the sake of a token: one is made, and nobody hears of it."""
    return replace(request, max_tokens=1, thinking_budget=None)


def with_turn(messages: Sequence[Message]) -> list[Message]:
    has_turn = any(message.role == "user" for message in messages)
    return [*messages] if has_turn else [*messages, NOTHING_YET]


class SilentEncoder:
    """Tells of a response without output."""

    def __init__(self, encoder: StreamEncoder) -> None:
        self._encoder = encoder

    def encode(self, event: Event) -> Iterator[SseFrame]:
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                return
            case ChoiceFinished():
                event = replace(event, reason=FinishReason.EOS)
            case Finished(usage=usage):
                event = replace(event, usage=_without_answer(usage))
        yield from self._encoder.encode(event)


def _without_answer(usage: Usage) -> Usage:
    return Usage(
        prompt_tokens=usage.prompt_tokens, completion_tokens=0, cached_tokens=usage.cached_tokens
    )
