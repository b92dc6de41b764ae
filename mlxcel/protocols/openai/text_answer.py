"""Answers of /v1/completions in one piece."""

from typing import Any

from mlxcel.core.answer import Answer, Choice
from mlxcel.protocols.base import Head
from mlxcel.protocols.openai.answer import FINISH, timings_body, usage_body
from mlxcel.protocols.openai.text_logprobs import TextLogprobs


def text_head(head: Head) -> dict[str, Any]:
    """What a body and a chunk begin with: they are the same kind of object."""
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": None,
    }


def text_choice(
    index: int, text: str, reason: str | None, logprobs: dict[str, list[Any]] | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}


def completion_body(head: Head, answer: Answer, *, has_logprobs: bool) -> dict[str, Any]:
    return text_head(head) | {
        "choices": [
            text_choice(
                index,
                choice.text,
                FINISH[choice.reason],
                _logprobs(choice) if has_logprobs else None,
            )
            for index, choice in enumerate(answer.choices)
        ],
        "usage": usage_body(answer.usage),
        "timings": timings_body(answer.usage, answer.timings),
    }


def _logprobs(choice: Choice) -> dict[str, list[Any]]:
    return TextLogprobs().body(choice.prompt, choice.logprobs)
