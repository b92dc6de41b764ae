"""Bounds of an answer that are looked at where a line ends: indentation and time (llama-server's
`n_indent` and `t_max_predict_ms`)."""

from collections.abc import Callable
from time import monotonic

from mlxcel.core.events import FinishReason
from mlxcel.core.request import GenerationRequest

BLANK = " \t"


class LineLimits:
    """Fed with the text of one answer, in pieces. The clock starts with the first."""

    def __init__(
        self, *, indent: int, time_limit_ms: int, clock: Callable[[], float] = monotonic
    ) -> None:
        """0: no such bound."""
        self._indent = indent
        self._limit_s = time_limit_ms / 1000
        self._clock = clock
        self._began_s: float | None = None
        self._width: int | None = None
        """Blanks at the beginning of the line so far; None: the line has begun with a word, or it
        is the first."""

    def feed(self, text: str) -> tuple[str, FinishReason | None]:
        """What of the text may be shown, and what ends the answer there."""
        if self._began_s is None:
            self._began_s = self._clock()
        cut = self._outdented(text) if self._indent else None
        if cut is not None:
            return text[:cut], FinishReason.INDENT
        is_over = 0 < self._limit_s < self._clock() - self._began_s
        return text, FinishReason.TIME if is_over and "\n" in text else None

    def _outdented(self, text: str) -> int | None:
        """Where a line goes on whose blanks are too few. An empty line has none, as llama-server
        sees it."""
        for place, char in enumerate(text):
            if self._width is not None:
                if char in BLANK:
                    self._width += 1
                    continue
                if self._width < self._indent:
                    return place
                self._width = None
            if char == "\n":
                self._width = 0
        return None


def line_limits(request: GenerationRequest) -> LineLimits | None:
    if request.indent <= 0 and request.time_limit_ms <= 0:
        return None
    return LineLimits(indent=max(request.indent, 0), time_limit_ms=max(request.time_limit_ms, 0))
