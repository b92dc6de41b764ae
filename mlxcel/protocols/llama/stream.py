"""A native completion as a stream: a frame for each piece, the final object as the last one."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    PromptProgress,
    Started,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.protocols.base import Head, SseFrame
from mlxcel.protocols.llama.answer import (
    End,
    final_body,
    probabilities,
    projected,
    timings_body,
)
from mlxcel.protocols.llama.shape import Shape

NO_SLOT = -1


class CompletionEncoder:
    """Frames of one stream; there is no `[DONE]`. The clock tells the time since the first token,
    for frames that carry timings."""

    def __init__(
        self, head: Head, shape: Shape, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._head = head
        self._shape = shape
        self._clock = clock
        self._prompt_tokens = 0
        self._said = 0
        self._has_new_line = False
        self._start: _Start | None = None
        self._last: ChoiceFinished | None = None

    def encode(self, event: Event) -> Iterator[SseFrame]:
        match event:
            case Accepted(prompt_tokens=tokens):
                self._prompt_tokens = tokens
            case PromptProgress():
                yield SseFrame(data=self._progress(event))
            case Started():
                self._start = _Start(event, self._clock())
            case TextDelta():
                yield SseFrame(data=self._piece(event))
            case ChoiceFinished():
                self._last = event
            case Finished():
                yield SseFrame(data=self._final(event))
            case Failed(error):
                # Whatever failed: the status of the answer was sent already.
                body = {"code": 500, "message": error.message, "type": "server_error"}
                yield SseFrame(data={"error": body})

    def _piece(self, event: TextDelta) -> dict[str, Any]:
        self._said += len(event.ids)
        self._has_new_line |= "\n" in event.text
        body = self._frame(event.text, event.ids)
        if self._shape.has_timings:
            body["timings"] = timings_body(*self._measured())
        if self._shape.has_probabilities:
            body["completion_probabilities"] = probabilities(event.logprobs, self._shape)
        return body

    def _progress(self, event: PromptProgress) -> dict[str, Any]:
        body = self._frame("", ())
        if self._shape.has_timings:
            usage = Usage(
                prompt_tokens=event.processed,
                completion_tokens=0,
                cached_tokens=event.cached,
            )
            took = Timings(queued_ms=0.0, prompt_ms=event.took_ms, decode_ms=0.0)
            body["timings"] = timings_body(usage, took)
        return body | {
            "prompt_progress": {
                "total": event.total,
                "cache": event.cached,
                "processed": event.processed,
                "time_ms": round(event.took_ms, 3),
            }
        }

    def _frame(self, text: str, ids: tuple[int, ...]) -> dict[str, Any]:
        return {
            "index": 0,
            "content": text,
            "tokens": list(ids),
            "stop": False,
            "id_slot": NO_SLOT,
            "tokens_predicted": self._said,
            "tokens_evaluated": self._prompt_tokens,
        }

    def _measured(self) -> tuple[Usage, Timings]:
        """So far. Zeros before the first token: nothing is told then but the prompt."""
        start = self._start
        if start is None:
            usage = Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._said)
            return usage, Timings(queued_ms=0.0, prompt_ms=0.0, decode_ms=0.0)
        usage = Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._said,
            cached_tokens=start.event.cached_tokens,
        )
        queued, prompt = start.event.queued_ms, start.event.prompt_ms
        decode = (self._clock() - start.at_s) * 1000
        return usage, Timings(
            queued_ms=queued,
            prompt_ms=prompt,
            decode_ms=decode,
            total_ms=queued + prompt + decode,
        )

    def _final(self, event: Finished) -> dict[str, Any]:
        assert self._last is not None, "every choice ends before the request does"
        end = End(
            reason=self._last.reason,
            matched_stop=self._last.matched_stop,
            has_new_line=self._has_new_line,
            usage=event.usage,
            timings=event.timings,
            slot=event.slot,
        )
        return projected(final_body(self._head, self._shape, end), self._shape.paths)


@dataclass(frozen=True, slots=True)
class _Start:
    event: Started
    at_s: float
