"""Log-probabilities: what a request asks for, and how an answer shows them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mlxcel.core.events import Likely, TokenLogprobs
from mlxcel.protocols.fields import Reader, shown

TOP = 20
LEAST = -9999.0
"""JSON has no minus infinity: OpenAI's number for a token that is out of the question."""


def read_top_logprobs(fields: Reader) -> int | None:
    """How many likeliest tokens are shown beside each one said; None: nothing is shown."""
    asked = fields.boolean("logprobs") is True
    top = fields.integer("top_logprobs", minimum=0, maximum=TOP)
    if top is not None and not asked:
        rule = f"wants logprobs: true beside it, got {shown(fields.body.get('logprobs'))}"
        raise fields.refuse("top_logprobs", rule)
    return (top or 0) if asked else None


def logprobs_body(tokens: Sequence[TokenLogprobs]) -> dict[str, Any]:
    return {"content": [_entry(token) for token in tokens]}


def _entry(token: TokenLogprobs) -> dict[str, Any]:
    return _likely(token.said) | {"top_logprobs": [_likely(other) for other in token.top]}


def _likely(token: Likely) -> dict[str, Any]:
    return {
        "token": token.token,
        "logprob": max(token.logprob, LEAST),
        "bytes": _bytes(token.data),
    }


@lru_cache(maxsize=1 << 16)
def _bytes(data: bytes) -> list[int]:
    """Shared by all that name the token, so nobody may change it."""
    return list(data)
