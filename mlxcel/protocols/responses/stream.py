"""Answers of /v1/responses as a stream of named events."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlxcel.core.errors import ErrorInfo
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
from mlxcel.protocols.base import SseFrame
from mlxcel.protocols.responses.body import ResponseState, status_after
from mlxcel.protocols.responses.output import COMPLETED, Called, Said, Thought


class ResponsesEncoder:
    """Items one after the other, each with its start, its deltas and its end. The last event
    carries the response as it is kept; nothing follows it, be it a failure of the transport."""

    def __init__(self, state: ResponseState) -> None:
        self._state = state
        self._sequence = 0
        self._open: Thought | Said | None = None
        self._end: ChoiceFinished | None = None
        self._has_begun = False
        self._has_ended = False

    def encode(self, event: Event) -> Iterator[SseFrame]:
        if self._has_ended:
            return
        match event:
            case Accepted():
                yield from self._begun()
            case ReasoningDelta(text=text):
                yield from self._thought(text)
            case TextDelta(text=text) if text:
                yield from self._said(text)
            case ToolCallDelta():
                yield from self._called(event)
            case ChoiceFinished():
                self._end = event
            case Finished(usage=usage):
                yield from self._finished(usage)
            case Failed(error=error):
                yield from self._failed(error)

    def _begun(self) -> Iterator[SseFrame]:
        self._has_begun = True
        for name in ("created", "in_progress"):
            yield self._frame(name, response=self._state.body())

    def _thought(self, text: str) -> Iterator[SseFrame]:
        item = self._open
        if not isinstance(item, Thought):
            yield from self._closed(COMPLETED)
            item = self._open = self._state.thought()
            yield self._item("added", item)
            if item.is_summed:
                part = item.summary()
                yield self._summary_frame("part.added", item, part=part)
        item.texts.append(text)
        yield self._part_frame("reasoning_text.delta", item, delta=text)
        if item.is_summed:
            yield self._summary_frame("text.delta", item, delta=text)

    def _said(self, text: str) -> Iterator[SseFrame]:
        item = self._open
        if not isinstance(item, Said):
            yield from self._closed(COMPLETED)
            item = self._open = self._state.said()
            yield self._item("added", item)
            yield self._part_frame("content_part.added", item, part=item.part())
        item.texts.append(text)
        yield self._part_frame("output_text.delta", item, delta=text, logprobs=[])

    def _called(self, event: ToolCallDelta) -> Iterator[SseFrame]:
        yield from self._closed(COMPLETED)
        item = self._state.called(event.call_id, event.name)
        if item is None:
            return
        yield self._item("added", item)
        item.arguments, item.status = event.arguments, COMPLETED
        place = self._place(item)
        yield self._frame("function_call_arguments.delta", **place, delta=event.arguments)
        yield self._frame(
            "function_call_arguments.done", **place, name=event.name, arguments=event.arguments
        )
        yield self._item("done", item)

    def _closed(self, status: str) -> Iterator[SseFrame]:
        item, self._open = self._open, None
        match item:
            case None:
                return
            case Thought(text=text):
                yield self._part_frame("reasoning_text.done", item, text=text)
                if item.is_summed:
                    yield self._summary_frame("text.done", item, text=text)
                    yield self._summary_frame("part.done", item, part=item.summary())
            case Said(text=text):
                yield self._part_frame("output_text.done", item, text=text, logprobs=[])
                yield self._part_frame("content_part.done", item, part=item.part())
        item.status = status
        yield self._item("done", item)

    def _finished(self, usage: Usage) -> Iterator[SseFrame]:
        assert self._end is not None, "the choice ends before the request does"
        reason = self._end.reason
        yield from self._closed(status_after(reason))
        self._has_ended = True
        body = self._state.finish(reason, usage)
        yield self._frame(self._state.status, response=body)

    def _failed(self, error: ErrorInfo) -> Iterator[SseFrame]:
        """Also before the first event, where headers had to leave early: no client reads a
        stream that begins with anything but a response that was created."""
        if not self._has_begun:
            yield from self._begun()
        self._has_ended = True
        yield self._frame("failed", response=self._state.fail(error))

    def _item(self, what: str, item: Thought | Said | Called) -> SseFrame:
        place = self._place(item)["output_index"]
        return self._frame(f"output_item.{what}", output_index=place, item=item.body())

    def _part_frame(self, what: str, item: Thought | Said, **more: Any) -> SseFrame:
        return self._frame(what, **self._place(item), content_index=0, **more)

    def _summary_frame(self, what: str, item: Thought, **more: Any) -> SseFrame:
        return self._frame(
            f"reasoning_summary_{what}", **self._place(item), summary_index=0, **more
        )

    def _place(self, item: Thought | Said | Called) -> Mapping[str, Any]:
        """Only the last item is told about."""
        return {"item_id": item.id, "output_index": len(self._state.output) - 1}

    def _frame(self, what: str, /, **data: Any) -> SseFrame:
        kind = f"response.{what}"
        number, self._sequence = self._sequence, self._sequence + 1
        return SseFrame(data={"type": kind, "sequence_number": number, **data}, event=kind)
