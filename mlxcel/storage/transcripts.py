"""What was said in conversations that clients name themselves.

Owned by the event loop.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from mlxcel.storage.shelf import Bounds, Clock, Shelf


class Transcripts:
    """Of each conversation all items, or none: one that has grown too large begins anew."""

    def __init__(self, bounds: Bounds, *, clock: Clock = time.monotonic) -> None:
        self._bounds = bounds
        self._shelf = Shelf(bounds, clock=clock)

    @property
    def is_on(self) -> bool:
        return self._bounds.is_on

    def items(self, owner: str, conversation: str) -> list[Mapping[str, Any]]:
        """Empty for one that is not known."""
        self._shelf.touch((owner, conversation))
        data = self._shelf.get((owner, conversation))
        return [] if data is None else [orjson.loads(line) for line in data.splitlines()]

    def append(self, owner: str, conversation: str, items: Sequence[Mapping[str, Any]]) -> None:
        if not self.is_on:
            return
        before = self._shelf.get((owner, conversation)) or b""
        lines = b"".join(orjson.dumps(item) + b"\n" for item in items)
        self._shelf.put((owner, conversation), before + lines)
