"""Which row makes room for a more important prompt. Pure."""

from collections.abc import Callable, Iterable
from enum import StrEnum

from mlxcel.core.request import Lane
from mlxcel.engine.sequence import Sequence


class Policy(StrEnum):
    LONGEST_FIRST = "longest-first"
    LOWEST_PRIORITY = "lowest-priority"


Order = Callable[[Sequence], tuple[int, ...]]

ORDERS: dict[Policy, Order] = {
    Policy.LONGEST_FIRST: lambda row: (len(row.output), row.lane),
    Policy.LOWEST_PRIORITY: lambda row: (row.lane, len(row.output)),
}
"""The victim is the row with the largest of these."""


def victim_of(rows: Iterable[Sequence], policy: Policy, lane: Lane) -> Sequence | None:
    """Only rows that are strictly less important than `lane`: otherwise two rows of one lane
    could drive each other out for ever."""
    lower = [row for row in rows if row.lane > lane]
    return max(lower, key=ORDERS[policy], default=None)
