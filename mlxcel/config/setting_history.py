"""What was changed, and where undoing leads. Bounded; belongs to whoever holds the store's lock."""

import copy
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import NothingToRevert, UnknownVersion

HISTORY = 1000
"""Changes that are kept."""
TOLD = 1000
"""Characters of a value in the history: a thousand changes are one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is kept of a version, to go back to it."""

    version: int
    values: Mapping[str, Any]
    """HTTP name to canonical value; mutable names alone."""
    undo: int | None
    """The version that undoing leads to."""


def brief(value: object) -> object:
    """A value as history tells it: the beginning of its JSON where it is long. What a revert
    needs is kept apart."""
    text = json.dumps(value, ensure_ascii=False, default=dict)
    return value if len(text) <= TOLD else f"{text[:TOLD]}..."


class History:
    def __init__(self, start: Past) -> None:
        self._pasts = deque([start], maxlen=HISTORY + 1)
        self._changes: deque[dict[str, Any]] = deque(maxlen=HISTORY)

    def add(self, past: Past, change: dict[str, Any]) -> None:
        """`change` is what clients are told of it."""
        self._pasts.append(past)
        self._changes.append(change)

    def changes(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return copy.deepcopy(list(self._changes))

    def before(self, version: int) -> Past:
        """What was before a change. Raises UnknownVersion."""
        first, last = self._pasts[0].version, self._pasts[-1].version
        if not first < version <= last:
            raise UnknownVersion(version, first + 1, last)
        return self._pasts[version - 1 - first]

    def undone(self) -> Past:
        """What undoing the last change leads to. Raises NothingToRevert."""
        first, wanted = self._pasts[0].version, self._pasts[-1].undo
        if wanted is None or wanted < first:
            raise NothingToRevert
        return self._pasts[wanted - first]
