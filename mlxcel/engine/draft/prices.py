"""What rounds cost, as measured, and how many proposals are worth it.

A round of some width takes so many plain steps (its price) and yields, of each row, a token more
than come true. Knows numbers of rows and tokens, milliseconds and chances; lies on top of the
governors, which know nothing of time.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

REMEMBERED = 7
"""Steps of one size whose median counts, the lower one of two: what comes late came late, and
nothing comes early."""
ENOUGH = 3
"""Plain steps until they count. What was in flight may be there at once, so one says little."""
FADING = 0.8
"""What a round's evidence weighs a round later."""
HOPED, HOPE = 0.8, 1.0
"""What is taken for true of proposals that nobody has seen yet, and how many tests that weighs."""
FIRST_REST = 16
LONGEST_REST = 128
"""Plain steps until a row that is held back has a round again: prices and texts change."""


class Prices:
    """Of one decode loop, which owns it."""

    def __init__(self) -> None:
        self._ms: dict[tuple[int, int], deque[float]] = defaultdict(
            lambda: deque(maxlen=REMEMBERED)
        )

    def lasted(self, ms: float, rows: int, width: int) -> None:
        """`width`: positions of each row; 1: a plain step."""
        self._ms[rows, width].append(ms)

    def wants_plain(self, rows: int) -> bool:
        """Rounds are known, and nothing to hold them against."""
        return not self._has_plain(rows) and bool(self._known(rows))

    def of(self, rows: int) -> Callable[[int], float] | None:
        """Plain steps that a round of a width takes. Between known widths it is interpolated;
        wider ones are taken to cost no more than the widest known, so that they are tried.
        None: not known yet."""
        known = self._known(rows)
        if not known or not self._has_plain(rows):
            return None
        plain = median_low(self._ms[rows, 1])
        prices = [(width, median_low(self._ms[rows, width]) / plain) for width in known]
        return lambda width: _between([(1, 1.0), *prices], width)

    def _has_plain(self, rows: int) -> bool:
        return len(self._ms.get((rows, 1), ())) >= ENOUGH

    def _known(self, rows: int) -> list[int]:
        return sorted(width for of, width in self._ms if of == rows and width > 1)


@dataclass(slots=True)
class Prospects:
    """How likely the next proposed token of a row comes true, by what became of the last ones."""

    right: float = 0.0
    tested: float = 0.0
    rested: int = 0
    """Plain steps that it was held back for."""
    rest: int = FIRST_REST
    """As many as it is held back for, unless it is seen before that it pays."""

    @property
    def rate(self) -> float:
        return (self.right + HOPED * HOPE) / (self.tested + HOPE)

    @property
    def is_rested(self) -> bool:
        return self.rested >= self.rest

    def took(self, proposed: int, accepted: int) -> None:
        """After a round: proposals behind the first wrong one were not tested."""
        self.came_true(accepted, accepted + (accepted < proposed))
        if self.rested:
            self.rest = FIRST_REST if accepted else min(2 * self.rest, LONGEST_REST)
        self.rested = 0

    def came_true(self, right: int, tested: int) -> None:
        self.right = FADING * self.right + right
        self.tested = FADING * self.tested + tested


def worthwhile(
    rates: Sequence[float], most: Sequence[int], price: Callable[[int], float], *, least: int = 0
) -> int:
    """Proposals a row at which a step of the batch yields most tokens for its time; each row
    proposes as many, or its `most`. 0: a plain step. `rates`: chances of each row's tokens."""

    def worth(count: int) -> float:
        tokens = sum(
            1 + expected(rate, min(count, limit)) for rate, limit in zip(rates, most, strict=True)
        )
        return tokens / price(1 + count)

    return max(range(least, max(most) + 1), key=worth)


def expected(rate: float, count: int) -> float:
    """Of `count` proposals, how many come true one after the other."""
    return float(count) if rate >= 1 else rate * (1 - rate**count) / (1 - rate)


def _between(points: Sequence[tuple[int, float]], width: int) -> float:
    for (left, low), (right, high) in pairwise(points):
        if width <= right:
            return low + (high - low) * (width - left) / (right - left)
    return points[-1][1]
