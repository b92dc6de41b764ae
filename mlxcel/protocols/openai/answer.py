"""Answers of /v1/chat/completions: the body, the chunks of a stream, usage and timings."""

from collections.abc import Iterator
from typing import Any

from mlxcel.core.events import (
    Accepted,
    Event,
    Failed,
    Finished,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.protocols.base import Head, SseFrame
from mlxcel.protocols.openai.errors import error_body

FINISH = {
    FinishReason.EOS: "stop",
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT: "length",
}
DONE = SseFrame(data="[DONE]")


def usage_body(usage: Usage) -> dict[str, int]:
    """Without `prompt_tokens_details`: it stands for a prompt cache that is on."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def timings_body(usage: Usage, timings: Timings) -> dict[str, Any]:
    """llama.cpp's keys, and two of ours.

    `effective_per_second` is what the client felt: answer tokens over the whole wall time,
    queue and prefill included.
    """
    prompt, answer = usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens
    return {
        "cache_n": usage.cached_tokens,
        "prompt_n": prompt,
        "prompt_ms": _rounded(timings.prompt_ms),
        "prompt_per_token_ms": _ratio(timings.prompt_ms, prompt),
        "prompt_per_second": _ratio(prompt * 1000, timings.prompt_ms),
        "predicted_n": answer,
        "predicted_ms": _rounded(timings.decode_ms),
        "predicted_per_token_ms": _ratio(timings.decode_ms, answer),
        "predicted_per_second": _ratio(answer * 1000, timings.decode_ms),
        "queued_ms": _rounded(timings.queued_ms),
        "effective_per_second": _ratio(answer * 1000, timings.total_ms),
    }


def _ratio(part: float, whole: float) -> float:
    """0 where there is nothing to divide by: a rate over no time, a time per no token."""
    return _rounded(part / whole) if whole > 0 else 0.0


def _rounded(value: float) -> float:
    return round(value, 3)


def chat_body(head: Head, text: str, finished: Finished) -> dict[str, Any]:
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": None,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": FINISH[finished.reason],
                "logprobs": None,
            }
        ],
        "usage": usage_body(finished.usage),
        "timings": timings_body(finished.usage, finished.timings),
    }


class ChatEncoder:
    """Chunks of one stream. A failure is an error frame and the end: no `[DONE]`, no reason."""

    def __init__(self, head: Head, *, include_usage: bool) -> None:
        self.head = head
        self.include_usage = include_usage

    def encode(self, event: Event) -> Iterator[SseFrame]:
        match event:
            case Accepted():
                yield self._delta({"role": "assistant"})
            case TextDelta(text=text):
                yield self._delta({"content": text})
            case Finished():
                yield from self._closing(event)
            case Failed(error=error):
                yield SseFrame(data=error_body(error))

    def _closing(self, event: Finished) -> Iterator[SseFrame]:
        choice = _choice({}, FINISH[event.reason])
        timings = timings_body(event.usage, event.timings)
        yield SseFrame(data=self._chunk([choice]) | {"timings": timings})
        if self.include_usage:
            yield SseFrame(data=self._chunk([]) | {"usage": usage_body(event.usage)})
        yield DONE

    def _delta(self, delta: dict[str, Any]) -> SseFrame:
        return SseFrame(data=self._chunk([_choice(delta, None)]))

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.head.id,
            "object": "chat.completion.chunk",
            "created": self.head.created,
            "model": self.head.model,
            "system_fingerprint": None,
            "choices": choices,
        }


def _choice(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
