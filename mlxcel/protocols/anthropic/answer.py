"""Answers of /v1/messages in one piece."""

import json
from collections.abc import Mapping
from typing import Any

from mlxcel.core.answer import Answer, Choice
from mlxcel.core.events import FinishReason, Usage
from mlxcel.protocols.base import Head

LIMITS = (
    FinishReason.LENGTH,
    FinishReason.CONTEXT,
    FinishReason.INDENT,
    FinishReason.TIME,
)

ID_DIGITS = 16
DEPTH = 200
WRITABLE = range(-(2**63), 2**64)
"""Levels and integers that are written as they are."""


def message_body(head: Head, answer: Answer, *, shows_thinking: bool) -> dict[str, Any]:
    choice = answer.choices[0]
    return started_body(head, usage_body(answer.usage)) | {
        "content": _content(choice, shows_thinking),
        "stop_reason": stop_reason(choice.reason, has_calls=bool(choice.calls)),
        "stop_sequence": stop_sequence(choice.reason, choice.matched_stop),
    }


def started_body(head: Head, usage: Mapping[str, Any]) -> dict[str, Any]:
    """A message of which nothing is there yet."""
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": dict(usage),
    }


def usage_body(usage: Usage) -> dict[str, Any]:
    """As Anthropic counts: what was found in the cache is not among the input tokens. Nothing is
    told of what the answer adds to the cache: it costs nothing."""
    cached = 0 if usage.cached_tokens is None else usage.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }


def stop_reason(reason: FinishReason, *, has_calls: bool) -> str:
    if has_calls:
        return "tool_use"
    if reason is FinishReason.STOP:
        return "stop_sequence"
    return "max_tokens" if reason in LIMITS else "end_turn"


def stop_sequence(reason: FinishReason, matched: str | None) -> str | None:
    return matched if reason is FinishReason.STOP else None


def call_input(arguments: str) -> Mapping[str, Any]:
    """What is no JSON object is an empty one, and so is one too deep to be written. Models write
    what no answer can hold: an integer beyond 64 bits is a float, half a surrogate pair is `?`."""
    try:
        value = _writable(json.loads(arguments, parse_constant=_refuse), DEPTH)
    except (ValueError, OverflowError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _writable(value: Any, levels: int) -> Any:
    """Raises ValueError for what is deeper, OverflowError for an integer that is no float."""
    if levels < 0:
        raise ValueError("too deep")
    match value:
        case dict():
            return {_text(key): _writable(inner, levels - 1) for key, inner in value.items()}
        case list():
            return [_writable(inner, levels - 1) for inner in value]
        case str():
            return _text(value)
        case int() if value not in WRITABLE:
            return float(value)
    return value


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def call_id(own: str) -> str:
    """Those of calls are made in the form of OpenAI's, with more digits."""
    return f"toolu_{own.removeprefix('call_')[:ID_DIGITS]}"


def _content(choice: Choice, shows_thinking: bool) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if shows_thinking and choice.reasoning:
        content.append({"type": "thinking", "thinking": choice.reasoning, "signature": ""})
    if choice.text or not (choice.calls or content):
        content.append({"type": "text", "text": choice.text})
    content += (
        {
            "type": "tool_use",
            "id": call_id(call.id),
            "name": call.name,
            "input": call_input(call.arguments),
        }
        for call in choice.calls
    )
    return content
