"""Whether a worker still lives, judged from its heartbeats. Pure: it is called once a round."""

from typing import NamedTuple


class Beat(NamedTuple):
    """What a worker's beat thread says."""

    ticks: int
    """Ticks finished so far."""
    busy_s: float
    """How long the tick that is running has run; 0 between ticks."""


class Watch:
    """Counts rounds without a beat, not seconds: a front that was itself suspended for a
    minute then does not take its workers for dead."""

    def __init__(self, *, interval_s: float, timeout_s: float, tick_timeout_s: float) -> None:
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._tick_timeout_s = tick_timeout_s
        self._missed = 0

    def judge(self, beat: Beat | None) -> str | None:
        """One round: the newest beat since the last round. Returns why the worker must go."""
        if beat is None:
            self._missed += 1
            silent_s = self._missed * self._interval_s
            return f"no heartbeat for {silent_s:g} s" if silent_s > self._timeout_s else None
        self._missed = 0
        if beat.busy_s > self._tick_timeout_s:
            return f"tick {beat.ticks + 1} has been running for {beat.busy_s:.1f} s"
        return None
