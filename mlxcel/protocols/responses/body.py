"""The response object: what is known of one response, from its first event to its last."""

from collections.abc import Callable, Mapping
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.errors import ErrorInfo
from mlxcel.core.events import FinishReason, Usage
from mlxcel.protocols.base import Head
from mlxcel.protocols.openai.answer import FINISH
from mlxcel.protocols.responses.errors import CANCELLED, response_error
from mlxcel.protocols.responses.items import ID_BYTES, NewHex
from mlxcel.protocols.responses.output import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    Called,
    Output,
    Said,
    Thought,
    bodies,
    output_text,
)

Clock = Callable[[], float]
"""Unix seconds."""
OnDone = Callable[[dict[str, Any]], None]
"""Told the final object of a response that is whole, or was cut by a limit; never of one that
failed."""


class ResponseState:
    """Whoever answers owns it; both forms of an answer are made from it."""

    def __init__(
        self,
        head: Head,
        *,
        echoes: Mapping[str, Any],
        max_calls: int | None,
        seals: bool,
        sums_up: bool,
        new_hex: NewHex,
        clock: Clock,
        on_done: OnDone | None,
    ) -> None:
        """`max_calls`: those beyond are left out. `seals`: thoughts come sealed as well;
        `sums_up`: as a summary as well."""
        self._head = head
        self._echoes = echoes
        self._max_calls = max_calls
        self._seals = seals
        self._sums_up = sums_up
        self._new_hex = new_hex
        self._clock = clock
        self._on_done = on_done
        self.output: list[Output] = []
        self.status = IN_PROGRESS
        self._error: dict[str, Any] | None = None
        self._completed_at: int | None = None
        self._usage: Usage | None = None

    def thought(self) -> Thought:
        item = Thought(id=self._id("rs"), is_sealed=self._seals, is_summed=self._sums_up)
        self.output.append(item)
        return item

    def said(self) -> Said:
        item = Said(id=self._id("msg"))
        self.output.append(item)
        return item

    def called(self, call_id: str, name: str) -> Called | None:
        """None: there are enough calls."""
        calls = sum(isinstance(item, Called) for item in self.output)
        if self._max_calls is not None and calls >= self._max_calls:
            return None
        item = Called(id=self._id("fc"), call_id=_call_id(call_id), name=name)
        self.output.append(item)
        return item

    def finish(self, reason: FinishReason, usage: Usage) -> dict[str, Any]:
        """The final object. What is still open is closed."""
        self.status = status_after(reason)
        self._usage = usage
        if self.status == COMPLETED:
            self._completed_at = int(self._clock())
        self._close(self.status)
        body = self.body()
        if self._on_done is not None:
            self._on_done(body)
        return body

    def fail(self, error: ErrorInfo) -> dict[str, Any]:
        self.status = CANCELLED if error.code == CANCELLED else "failed"
        self._error = response_error(error)
        self._close(INCOMPLETE)
        return self.body()

    def body(self) -> dict[str, Any]:
        """Every key, whatever has happened so far."""
        is_cut = self.status == INCOMPLETE
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "completed_at": self._completed_at,
            "status": self.status,
            "error": self._error,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": self._head.model,
            "output": bodies(self.output),
            "output_text": output_text(self.output),
            **self._echoes,
            "usage": None if self._usage is None else usage_body(self._usage),
        }

    def _close(self, status: str) -> None:
        for item in self.output:
            if item.status == IN_PROGRESS:
                item.status = status

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._new_hex(ID_BYTES)}"


def whole(state: ResponseState, answer: Answer) -> dict[str, Any]:
    """The object of an answer in one piece: thoughts, calls, words (http-responses, 5)."""
    choice = answer.choices[0]
    status = status_after(choice.reason)
    if choice.reasoning:
        is_last = not (choice.text or choice.calls)
        thought = state.thought()
        thought.texts.append(choice.reasoning)
        thought.status = status if is_last else COMPLETED
    for call in choice.calls:
        called = state.called(call.id, call.name)
        if called is not None:
            called.arguments, called.status = call.arguments, COMPLETED
    if choice.text or not any(isinstance(item, Called) for item in state.output):
        state.said().texts.append(choice.text)
    return state.finish(choice.reason, answer.usage)


def status_after(reason: FinishReason) -> str:
    return INCOMPLETE if FINISH[reason] == "length" else COMPLETED


def usage_body(usage: Usage) -> dict[str, Any]:
    """Nothing is told of what the answer adds to the cache: it costs nothing."""
    cached, thought = usage.cached_tokens, usage.reasoning_tokens
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": 0 if cached is None else cached,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0 if thought is None else thought},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _call_id(own: str) -> str:
    """In the form of this route: 16 hex digits."""
    return f"call_{own.removeprefix('call_')[: 2 * ID_BYTES]}"
