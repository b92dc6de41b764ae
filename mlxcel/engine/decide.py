"""What a tick does: a pure function of a few numbers.

Knows neither arrays nor requests. Bound (tested as a property): a prompt of C chunks gets its
first token within C * (interval + 1) ticks, however busy decoding is.
"""

from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state a decision rests on."""

    is_parked: bool
    """One prompt's chunked prefill is unfinished; no other prompt is admitted meanwhile."""
    active: int
    """Rows that decode."""
    is_flying: bool
    """A dispatched step has not been read yet."""
    waiting: int
    slots: int
    interval: int
    """Decode ticks a parked chunk may lose in a row; 0: it waits until the batch drains."""
    lost: int
    """Decode ticks it has lost so far."""


def decide(view: View) -> Action:
    if view.is_parked:
        if view.active == 0 and not view.is_flying:
            return Action.PREFILL
        is_due = view.interval > 0 and view.lost >= view.interval
        return Action.PREFILL if is_due else Action.DECODE
    if view.waiting and view.active < view.slots:
        return Action.PREFILL
    return Action.DECODE if view.active or view.is_flying else Action.IDLE


def next_lost(view: View, action: Action) -> int:
    """The count of lost ticks after `action`, given the state it was decided on."""
    if not view.is_parked or action is Action.PREFILL:
        return 0
    return view.lost + 1 if action is Action.DECODE else view.lost
