"""How many tokens a row may have proposed, by what became of those before (speculative 7).

One object a row. `budget` asks nothing of the row and changes nothing.
"""

import math
from typing import Protocol

HALF = 0.5
MISSES = 3
"""Rounds in a row of which nothing was accepted, until drafting rests."""
FIRST_PAUSE = 4
LONGEST_PAUSE = 32
NARROW = 2
"""What a gated row may have proposed until it has shown that it pays."""
PAYS = 1.5
"""Tokens accepted a round, on average."""
SIGHTINGS = 2
"""Shadow tokens that came true until a gated row is tried again."""


class Governor(Protocol):
    @property
    def budget(self) -> int:
        """Tokens that may be proposed now; 0: none."""
        ...

    @property
    def watches(self) -> bool:
        """Nothing may be proposed, but it wants to know what would have come true."""
        ...

    def passed(self) -> None:
        """The row was asked while it rested."""
        ...

    def took(self, accepted: int) -> None:
        """After a round."""
        ...

    def came_true(self, is_right: bool) -> None:
        """What became of a token that would have been proposed."""
        ...


class Graded:
    """Fewer proposals the fewer are accepted, and pauses that grow. The cost of a wide step rises
    slowly: on a CPU and on Metal."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._average = float(most)
        self._misses = 0
        self._pause = 0
        self._next_pause = FIRST_PAUSE

    watches = False

    @property
    def budget(self) -> int:
        if self._pause:
            return 0
        return min(max(math.floor(2 * self._average + HALF) + 2, 1), self._most)

    def passed(self) -> None:
        self._pause = max(0, self._pause - 1)

    def took(self, accepted: int) -> None:
        self._average = HALF * self._average + HALF * accepted
        if accepted:
            self._misses, self._next_pause = 0, FIRST_PAUSE
            return
        self._misses += 1
        if self._misses == MISSES:
            self._misses, self._pause = 0, self._next_pause
            self._next_pause = min(2 * self._next_pause, LONGEST_PAUSE)

    def came_true(self, is_right: bool) -> None:
        pass


class Gated:
    """All or almost nothing. On CUDA any step wider than one token costs a lot more, whatever its
    width."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._average = 1.0
        self._misses = 0
        self._is_on_probation = False
        self._is_stopped = False
        self._sightings = 0

    @property
    def watches(self) -> bool:
        return self._is_stopped

    @property
    def budget(self) -> int:
        if self._is_stopped:
            return 0
        return self._most if self._average >= PAYS else min(NARROW, self._most)

    def passed(self) -> None:
        pass

    def took(self, accepted: int) -> None:
        self._average = HALF * self._average + HALF * accepted
        if accepted:
            self._misses, self._is_on_probation = 0, False
            return
        self._misses += 1
        if self._is_on_probation or self._misses == MISSES:
            self._is_stopped, self._sightings, self._misses = True, 0, 0

    def came_true(self, is_right: bool) -> None:
        if not is_right:
            return
        self._sightings += 1
        if self._sightings == SIGHTINGS:
            self._is_stopped, self._is_on_probation = False, True
