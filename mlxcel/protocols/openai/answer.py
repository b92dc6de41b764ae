"""Answers of /v1/chat/completions in one piece: choices, usage and timings."""

from typing import Any

from mlxcel.core.answer import Answer, Choice
from mlxcel.core.events import Drafted, FinishReason, Timings, Usage
from mlxcel.protocols.base import Head
from mlxcel.protocols.cache_words import cache_body
from mlxcel.protocols.openai.logprobs import logprobs_body

FINISH = {
    FinishReason.EOS: "stop",
    FinishReason.STOP: "stop",
    FinishReason.STRUCTURE: "stop",
    FinishReason.LOOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT: "length",
    FinishReason.INDENT: "length",
    FinishReason.TIME: "length",
    FinishReason.TOOL_CALLS: "tool_calls",
}


def usage_body(usage: Usage) -> dict[str, Any]:
    """`prompt_tokens_details` stands for a prompt cache that is on, be it of no use just now."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    return body


def timings_body(usage: Usage, timings: Timings) -> dict[str, Any]:
    """llama.cpp's keys, and some of ours.

    `effective_per_second` is what the client felt: answer tokens over the whole wall time,
    queue and prefill included. `cache` says what the prompt cache was good for.
    """
    cached = 0 if usage.cached_tokens is None else usage.cached_tokens
    prompt, answer = usage.prompt_tokens - cached, usage.completion_tokens
    body: dict[str, Any] = {
        "cache_n": cached,
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
    if timings.cache is not None:
        body["cache"] = cache_body(timings.cache)
    if timings.drafted is not None:
        body |= _drafted_body(timings.drafted)
    return body


def _drafted_body(drafted: Drafted) -> dict[str, Any]:
    return {
        "draft_n": drafted.proposed,
        "draft_n_accepted": drafted.accepted,
        "draft_rounds": drafted.rounds,
        "draft_kind": drafted.kind,
    }


def reasoning_body(text: str, alias: str | None) -> dict[str, str]:
    return {"reasoning_content": text} | ({} if alias is None else {alias: text})


def only_body(is_thought: bool) -> dict[str, bool]:
    return {"reasoning_only": True} if is_thought else {}


def chat_body(
    head: Head, answer: Answer, *, has_logprobs: bool, reasoning_alias: str | None
) -> dict[str, Any]:
    """`reasoning_only` stands beside a choice; for the only one also at the top."""
    choices = [
        {
            "index": index,
            "message": _message(choice, reasoning_alias),
            "finish_reason": FINISH[choice.reason],
            "logprobs": logprobs_body(choice.logprobs) if has_logprobs else None,
        }
        | only_body(choice.reasoning_only)
        for index, choice in enumerate(answer.choices)
    ]
    is_thought = len(choices) == 1 and answer.choices[0].reasoning_only
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": None,
        "choices": choices,
        "usage": usage_body(answer.usage),
        "timings": timings_body(answer.usage, answer.timings),
    } | only_body(is_thought)


def _message(choice: Choice, alias: str | None) -> dict[str, Any]:
    """`content` is null for a turn of calls alone, and text, be it empty, in every other."""
    content = None if choice.calls and not choice.text else choice.text
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if choice.reasoning:
        message |= reasoning_body(choice.reasoning, alias)
    if choice.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.calls
        ]
    return message


def _ratio(part: float, whole: float) -> float:
    """0 where there is nothing to divide by: a rate over no time, a time per no token."""
    return _rounded(part / whole) if whole > 0 else 0.0


def _rounded(value: float) -> float:
    return round(value, 3)
