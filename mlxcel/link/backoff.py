"""How long to wait before a worker is started again. Pure: knows neither clock nor process."""


class Backoff:
    """Grows with every failure in a row; a long healthy life starts the row anew."""

    def __init__(self, *, initial_s: float, factor: float, max_s: float, reset_s: float) -> None:
        self._initial_s = initial_s
        self._factor = factor
        self._max_s = max_s
        self._reset_s = reset_s
        self._next_s = initial_s

    def delay_after(self, healthy_s: float) -> float:
        """The wait after an incarnation that was ready for `healthy_s` seconds."""
        if healthy_s >= self._reset_s:
            self._next_s = self._initial_s
        delay_s = min(self._next_s, self._max_s)
        self._next_s = min(delay_s * self._factor, self._max_s)
        return delay_s
