"""Counters of one worker incarnation."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Mutable, owned by the tick."""

    started: int = 0
    completed: int = 0
    prompt_tokens: int = 0
    decode_tokens: int = 0
    decode_steps: int = 0
    prefill_chunks: int = 0
