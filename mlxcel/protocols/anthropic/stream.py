"""Answers of /v1/messages as a stream of named events."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from mlxcel.protocols.anthropic.answer import (
    call_id,
    call_input,
    started_body,
    stop_reason,
    stop_sequence,
    usage_body,
)
from mlxcel.protocols.anthropic.errors import error_body
from mlxcel.protocols.base import Head, SseFrame

THINKING: Mapping[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
TEXT: Mapping[str, Any] = {"type": "text", "text": ""}


class MessageEncoder:
    """Blocks one after the other, each with a start, deltas and a stop. One `ping` comes after
    the first event; later silences are filled with comments, as on all routes."""

    def __init__(self, head: Head, *, shows_thinking: bool) -> None:
        self._head = head
        self._shows_thinking = shows_thinking
        self._open: str | None = None
        """The kind of the block that is not closed yet."""
        self._blocks = 0
        self._calls: list[ToolCallDelta] = []
        """They come after all text, as in an answer in one piece."""
        self._end: ChoiceFinished | None = None

    def encode(self, event: Event) -> Iterator[SseFrame]:
        match event:
            case Accepted():
                yield self._started(event)
                yield _frame("ping", {})
            case TextDelta(text=text) if text:
                yield from self._switched("text", TEXT)
                yield self._delta({"type": "text_delta", "text": text})
            case ReasoningDelta(text=text) if self._shows_thinking:
                yield from self._switched("thinking", THINKING)
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case ToolCallDelta():
                self._calls.append(event)
            case ChoiceFinished():
                self._end = event
            case Finished(usage=usage):
                yield from self._finished(usage)
            case Failed(error=error):
                yield from self._closed()
                yield _frame("error", error_body(error))

    def _started(self, event: Accepted) -> SseFrame:
        report = event.cache
        usage = Usage(
            prompt_tokens=event.prompt_tokens,
            completion_tokens=0,
            cached_tokens=None if report is None else report.reused,
        )
        message = started_body(self._head, usage_body(usage))
        return _frame("message_start", {"message": message})

    def _switched(self, kind: str, block: Mapping[str, Any]) -> Iterator[SseFrame]:
        if self._open == kind:
            return
        yield from self._closed()
        yield from self._opened(kind, block)

    def _opened(self, kind: str, block: Mapping[str, Any]) -> Iterator[SseFrame]:
        self._open = kind
        yield _frame("content_block_start", {"index": self._blocks, "content_block": dict(block)})

    def _closed(self) -> Iterator[SseFrame]:
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": ""})
        yield _frame("content_block_stop", {"index": self._blocks})
        self._open = None
        self._blocks += 1

    def _delta(self, delta: Mapping[str, Any]) -> SseFrame:
        return _frame("content_block_delta", {"index": self._blocks, "delta": delta})

    def _call(self, event: ToolCallDelta) -> Iterator[SseFrame]:
        block = {"type": "tool_use", "id": call_id(event.call_id), "name": event.name, "input": {}}
        yield from self._opened("tool_use", block)
        # What is no JSON object is an empty one here too.
        sent = event.arguments if call_input(event.arguments) else "{}"
        yield self._delta({"type": "input_json_delta", "partial_json": sent})
        yield from self._closed()

    def _finished(self, usage: Usage) -> Iterator[SseFrame]:
        assert self._end is not None, "the choice ends before the request does"
        yield from self._closed()
        for call in self._calls:
            yield from self._call(call)
        reason = stop_reason(self._end.reason, has_calls=bool(self._calls))
        sequence = stop_sequence(self._end.reason, self._end.matched_stop)
        yield _frame(
            "message_delta",
            {
                "delta": {"stop_reason": reason, "stop_sequence": sequence},
                "usage": usage_body(usage),
            },
        )
        yield _frame("message_stop", {})


def _frame(name: str, data: Mapping[str, Any]) -> SseFrame:
    return SseFrame(data={"type": name, **data}, event=name)
