"""What the echo engine says and when it breaks, by regular expressions on what it heard last: the
result of a tool, the last user message, or the text it is to go on with.

Pure: knows token ids and bytes, nothing of rows or time.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any, Self

from mlxcel.core.byte_vocab import ASSISTANT, BYTES, END, SYSTEM, TOOL, USER
from mlxcel.core.errors import StartupError

TURNS = frozenset({SYSTEM, USER, ASSISTANT, TOOL, END})


class FaultKind(StrEnum):
    CRASH = "crash"
    """The worker ends, as after a segmentation fault."""
    HANG = "hang"
    """A tick that never returns, as in a wedged kernel."""
    ERROR = "error"
    """The row fails, the others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    when: re.Pattern[str]
    at_token: int
    """Happens instead of this output token, counted from 0."""
    kind: FaultKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    lines: tuple[tuple[re.Pattern[str], str], ...]
    faults: tuple[Fault, ...]

    @classmethod
    def read(cls, lines: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]]) -> Self:
        """From `engine.script` and `engine.faults`; StartupError for a bad expression."""
        return cls(
            lines=tuple(
                (_compiled(line["when"], f"engine.script[{at}].when"), line["say"])
                for at, line in enumerate(lines)
            ),
            faults=tuple(
                Fault(
                    when=_compiled(fault["when"], f"engine.faults[{at}].when"),
                    at_token=fault["at_token"],
                    kind=FaultKind(fault["kind"]),
                )
                for at, fault in enumerate(faults)
            ),
        )

    def reply(self, told: Sequence[str]) -> str:
        """The first line that matches the latest text that any line matches; else the earliest
        text itself comes back."""
        lines = (say for text in told for when, say in self.lines if when.search(text))
        return next(lines, told[-1])

    def fault(self, told: Sequence[str]) -> Fault | None:
        faults = (fault for text in told for fault in self.faults if fault.when.search(text))
        return next(faults, None)


def heard(tokens: Sequence[int]) -> tuple[str, ...]:
    """Latest first: the result of a tool that came after the last user message of a chat, if one
    did, and that message. Of tokens without any turn the whole text."""
    if TURNS.isdisjoint(tokens):
        return (_text(token for token in tokens if token < BYTES),)
    user, result = _last(tokens, USER), _last(tokens, TOOL)
    if result is None or (user is not None and user > result):
        return (_turn(tokens, user),)
    return (_turn(tokens, result), _turn(tokens, user))


def _last(tokens: Sequence[int], marker: int) -> int | None:
    return next((at for at in range(len(tokens) - 1, -1, -1) if tokens[at] == marker), None)


def _turn(tokens: Sequence[int], start: int | None) -> str:
    """The bytes between a marker and the one after it; "" without one."""
    if start is None:
        return ""
    return _text(takewhile(lambda token: token < BYTES, tokens[start + 1 :]))


def _text(data: Iterable[int]) -> str:
    return bytes(data).decode("utf-8", errors="replace")


def _compiled(pattern: str, key: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise StartupError(f"{key} = {pattern!r} is not a regular expression: {error}") from error
