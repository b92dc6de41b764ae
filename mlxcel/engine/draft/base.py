"""What a drafter is to the decode loop, and what the loop remembers of a row that has one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import mlx.core as mx

from mlxcel.engine.draft.governor import Governor
from mlxcel.engine.draft.prices import Prospects

PATIENT = 3
"""Asks without a proposal after which plain steps of a row may run ahead of their tokens."""


class Drafter(Protocol):
    """Of one row."""

    is_free: bool
    """Proposing runs no forward."""

    def hear(self, tokens: Sequence[int]) -> None:
        """The prompt, then what is said, in order."""
        ...

    def propose(self, count: int) -> list[int]:
        """Up to so many tokens that may follow; none where nothing is to be expected."""
        ...

    @property
    def odds(self) -> mx.array | None:
        """Out of what the last n proposals were drawn, float32 `[n, vocab]`, with numbers that are
        independent of the row's own (`OwnDraws`). None: they are kept where they are what the row
        draws."""
        ...


@dataclass(slots=True)
class RowDraft:
    """Mutable, owned by the tick."""

    drafter: Drafter
    governor: Governor
    heard: int = 0
    """Tokens of the row that the drafter knows."""
    seen: int = 0
    """Positions whose context rows it has read, where it reads them."""
    fruitless: int = 0
    """Asks in a row without a proposal."""
    odds: mx.array | None = None
    """Of the last proposal, where the row draws in view of it (`Drafter.odds`)."""
    shadow: list[int] = field(default_factory=list)
    """What would have been proposed, while the governor only watches."""
    shadow_at: int = 0
    """The place in the text of its first token."""
    prospects: Prospects = field(default_factory=Prospects)
    is_held: bool = False
    """It might propose something, but a round would not be worth it."""

    @property
    def is_patient(self) -> bool:
        return self.fruitless >= PATIENT
