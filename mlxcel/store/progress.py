"""Steps that take long, shown on standard error."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

Progress = Callable[[str, float | None], None]
"""Called with what is being done and how far it is (0..1, or None when that is unknown)."""

LINE_EVERY_S = 5.0
REDRAW_EVERY_S = 0.1


def silent(message: str, fraction: float | None) -> None:
    """Shows nothing."""


def progress_for(mode: bool | str, stream: TextIO | None = None) -> Progress:
    """The display that `observability.progress` asks for.

    `auto`: one line that rewrites itself on a terminal, elsewhere a new line every few seconds.
    True: the line that rewrites itself, whatever the stream is. False: nothing.
    """
    stream = sys.stderr if stream is None else stream
    if mode is False:
        return silent
    if mode is True or stream.isatty():
        return RewritingLine(stream)
    return PlainLines(stream)


class RewritingLine:
    """One line of a terminal. A new step, or a finished one, leaves the line before it standing."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._message: str | None = None
        self._drawn_s = float("-inf")

    def __call__(self, message: str, fraction: float | None) -> None:
        is_new, is_done = message != self._message, fraction is not None and fraction >= 1
        if not (is_new or is_done) and self._clock() - self._drawn_s < REDRAW_EVERY_S:
            return
        if is_new and self._message is not None:
            self._stream.write("\n")
        self._stream.write(f"\r\x1b[2K{_line(message, fraction)}")
        if is_done:
            self._stream.write("\n")
        self._stream.flush()
        self._message, self._drawn_s = (None if is_done else message), self._clock()


class PlainLines:
    """A line when a step begins, one every few seconds, one when it ends."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._message: str | None = None
        self._written_s = 0.0

    def __call__(self, message: str, fraction: float | None) -> None:
        is_done = fraction is not None and fraction >= 1
        is_due = self._clock() - self._written_s >= LINE_EVERY_S
        if message == self._message and not (is_done or is_due):
            return
        self._message, self._written_s = message, self._clock()
        print(_line(message, fraction), file=self._stream, flush=True)


def _line(message: str, fraction: float | None) -> str:
    return message if fraction is None else f"{message} {fraction:4.0%}"
