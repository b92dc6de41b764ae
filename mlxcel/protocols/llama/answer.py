"""The final object of a native completion: of an answer in one piece and, without its text, the
last frame of a stream."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.events import FinishReason, Likely, Timings, TokenLogprobs, Usage
from mlxcel.protocols.base import Head
from mlxcel.protocols.llama.settings import settings_body
from mlxcel.protocols.llama.shape import Shape
from mlxcel.protocols.openai import answer as openai
from mlxcel.protocols.openai.logprobs import LEAST

STOP_TYPES = {
    FinishReason.EOS: "eos",
    FinishReason.STRUCTURE: "eos",
    FinishReason.LOOP: "eos",
    FinishReason.TOOL_CALLS: "eos",
    FinishReason.STOP: "word",
    FinishReason.LENGTH: "limit",
    FinishReason.CONTEXT: "limit",
    FinishReason.INDENT: "limit",
    FinishReason.TIME: "limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an answer ended."""

    reason: FinishReason
    matched_stop: str | None
    has_new_line: bool
    usage: Usage
    timings: Timings
    slot: int


def whole_body(head: Head, shape: Shape, answer: Answer) -> dict[str, Any]:
    """All of it, or what was asked for of it."""
    choice = answer.choices[0]
    end = End(
        reason=choice.reason,
        matched_stop=choice.matched_stop,
        has_new_line="\n" in choice.text,
        usage=answer.usage,
        timings=answer.timings,
        slot=answer.slot,
    )
    body = final_body(head, shape, end, text=choice.text, ids=choice.ids)
    if shape.has_probabilities:
        body["completion_probabilities"] = probabilities(choice.logprobs, shape)
    return projected(body, shape.paths)


def final_body(
    head: Head, shape: Shape, end: End, *, text: str = "", ids: Sequence[int] = ()
) -> dict[str, Any]:
    usage = end.usage
    held = usage.prompt_tokens + usage.completion_tokens
    return {
        "index": 0,
        "content": text,
        "tokens": list(ids),
        "id_slot": end.slot,
        "stop": True,
        "model": head.model,
        "tokens_predicted": usage.completion_tokens,
        "tokens_evaluated": usage.prompt_tokens,
        "generation_settings": settings_body(
            shape.request,
            shape.fixed,
            stream=shape.stream,
            n_predict=shape.n_predict,
            is_seed_random=shape.is_seed_random,
            timings_per_token=shape.has_timings,
        ),
        "prompt": shape.prompt,
        "has_new_line": end.has_new_line,
        "truncated": end.reason is FinishReason.CONTEXT,
        "stop_type": STOP_TYPES[end.reason],
        "stopping_word": end.matched_stop or "",
        # The last token said was not read.
        "tokens_cached": max(held - 1, 0),
        "timings": timings_body(usage, end.timings),
    }


def timings_body(usage: Usage, timings: Timings) -> dict[str, Any]:
    """As on the chat routes, but for the rate of tokens said: time counts from the first of them
    on, so that one fewer was waited for."""
    waited = usage.completion_tokens - 1
    return openai.timings_body(usage, timings) | {
        "predicted_per_token_ms": _ratio(timings.decode_ms, waited),
        "predicted_per_second": _ratio(waited * 1000, timings.decode_ms),
    }


def probabilities(tokens: Sequence[TokenLogprobs], shape: Shape) -> list[dict[str, Any]]:
    is_post = shape.request.is_post_sampling
    top = "top_probs" if is_post else "top_logprobs"
    return [
        _likely(token.said, is_post) | {top: [_likely(other, is_post) for other in token.top]}
        for token in tokens
    ]


def projected(body: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The values at these paths, each under its whole path; what is not there is left out."""
    if not paths:
        return dict(body)
    found = ((path, _at(body, path)) for path in paths)
    return {path: value[0] for path, value in found if value}


def _at(body: Mapping[str, Any], path: str) -> tuple[Any, ...]:
    """The value, or nothing."""
    node: Any = body
    for key in path.split("/"):
        if not isinstance(node, Mapping) or key not in node:
            return ()
        node = node[key]
    return (node,)


def _likely(token: Likely, is_post: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"id": token.id, "token": token.token, "bytes": list(token.data)}
    if is_post:
        return body | {"prob": math.exp(token.logprob) if token.logprob > LEAST else 0.0}
    return body | {"logprob": max(token.logprob, LEAST)}


def _ratio(part: float, whole: float) -> float:
    """0 where there is nothing to divide by."""
    return round(part / whole, 3) if whole > 0 and part > 0 else 0.0
