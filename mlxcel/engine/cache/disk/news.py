"""What happens to files, as the tick is told."""

from dataclasses import dataclass
from enum import StrEnum

from mlxcel.engine.cache.disk.run import Run


class Refusal(StrEnum):
    """Why a run was not written."""

    QUEUE_FULL = "queue_full"
    TOO_LARGE = "too_large"
    NO_SPACE = "no_space"
    READ_ONLY = "read_only"
    FAILED = "failed"
    CLOSED = "closed"
    RESET = "reset"
    """Nobody wants it any more."""


LASTING = frozenset({Refusal.NO_SPACE, Refusal.READ_ONLY, Refusal.FAILED})
"""Of the folder, not of one run: the next run would fare alike."""


class Loss(StrEnum):
    """Why a file is no more."""

    ROOM = "room"
    """Others were used since, and the capacity or the free space of the disk asked for it."""
    AGE = "age"
    UNSOUND = "unsound"
    FOREIGN = "foreign"
    """It is there, but not ours."""
    VANISHED = "vanished"
    """Somebody else removed it."""
    ASKED = "asked"
    """By `drop` or `reset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    file: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWritten:
    file: str
    run: Run
    reason: Refusal
    detail: str
    """For the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    file: str
    reason: Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsound:
    """In place of a run: it could not be read."""

    file: str
    why: str
    is_removed: bool = False
    """Or left to its owner: `Gone` follows. Else it may be read another time."""


News = Written | NotWritten | Gone
