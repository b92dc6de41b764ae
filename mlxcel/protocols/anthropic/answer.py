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
    """What is no JSON object is an empty one."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


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
