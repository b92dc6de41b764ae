"""What the scheduler is told once, when it is made."""

from dataclasses import dataclass

from mlxcel.engine.schedule.cohort import CohortRules
from mlxcel.engine.schedule.shift import ShiftRules
from mlxcel.engine.schedule.victim import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRules:
    slots: int
    """Rows that decode together."""
    interval: int
    is_mixed: bool
    ignores_lanes: bool
    policy: Policy | None
    """Whom a more important prompt drives out of a full batch; None: nobody."""
    cohort: CohortRules
    shift: ShiftRules | None = None
    """None: an answer ends where the window does."""
