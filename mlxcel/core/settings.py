"""The live settings as frozen values: what the rest of the program reads.

A snapshot is taken by reference when a request arrives and never changes afterwards. How it
is patched is known by `config.settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """Values for the sampling fields a request leaves out."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    repetition_context_size: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: tuple[str, ...]
    seed: int | None
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One published snapshot. `fingerprint` is 64 hex digits over the mutable values."""

    version: int
    fingerprint: str
    sampling: SamplingDefaults
    decode_timeout_s: int
    """A row that has begun to decode and yields no token for this long is cancelled."""
    template_kwargs: Mapping[str, Any]
