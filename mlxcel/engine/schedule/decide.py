"""What a tick does: a pure function of a few numbers.

Knows neither arrays nor requests. Bound (tested as a property): a prompt of C chunks gets its
first token within C * (interval + 1) ticks, however busy decoding is.
"""

from dataclasses import dataclass
from enum import Enum

from mlxcel.core.request import Lane


class Action(Enum):
    IDLE = "idle"
    PREFILL = "prefill"
    """A chunk of a prompt, or several short prompts at once. With the last chunk the rows join
    the batch and one step of it runs, so that their first tokens are there."""
    MIXED = "mixed"
    """A chunk of the parked prompt and a decode step."""
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
    """Prompts that could be prefilled now: none while the KV budget has no room for the first."""
    slots: int
    interval: int
    """Decode ticks a parked chunk may lose in a row; 0: it waits until the batch drains."""
    lost: int
    """Decode ticks it has lost so far."""
    is_mixed: bool = False
    may_preempt: bool = False
    head_lane: Lane = Lane.LOW
    """Of the first prompt that waits."""
    lowest_lane: Lane = Lane.HIGH
    """The least important one among the rows that decode."""


def decide(view: View) -> Action:
    has_rows = view.active > 0 or view.is_flying
    if view.is_parked:
        if not has_rows:
            return Action.PREFILL
        if view.is_mixed:
            return Action.MIXED
        is_due = view.interval > 0 and view.lost >= view.interval
        return Action.PREFILL if is_due else Action.DECODE
    if view.waiting and (view.active < view.slots or preempts(view)):
        return Action.PREFILL
    return Action.DECODE if has_rows else Action.IDLE


def preempts(view: View) -> bool:
    """A full batch makes room for a prompt that is strictly more important than some row."""
    is_full = view.active >= view.slots
    return view.may_preempt and is_full and view.head_lane < view.lowest_lane


def next_lost(view: View, action: Action) -> int:
    """The count of lost ticks after `action`, given the state it was decided on."""
    if not view.is_parked or action in (Action.PREFILL, Action.MIXED):
        return 0
    return view.lost + 1 if action is Action.DECODE else view.lost
