"""What happened to a request: the events a dialect turns into wire bytes.

Order: Accepted (TextDelta)* (Finished | Failed). Failed may come at any point, once.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from mlxcel.core.errors import ErrorInfo


class FinishReason(StrEnum):
    """Why a row ended. A dialect maps these to its own words."""

    EOS = "eos"
    STOP = "stop"
    """A stop string matched."""
    LENGTH = "length"
    """`max_tokens` reached."""
    CONTEXT = "context"
    """The context window is full."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one request went, in milliseconds."""

    queued_ms: float
    """From arrival in the worker to the first prefill."""
    prompt_ms: float
    """From the first prefill to the first token."""
    decode_ms: float
    """From the first token to the last."""
    total_ms: float = 0.0
    """Wall time from arrival in the front to the last token, filled in by the front."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Nothing can refuse the request any more: headers may be sent."""

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More answer text. Never empty, never a broken UTF-8 sequence, never part of a stop match."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    reason: FinishReason
    usage: Usage
    timings: Timings
    matched_stop: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    error: ErrorInfo


Event = Accepted | TextDelta | Finished | Failed
