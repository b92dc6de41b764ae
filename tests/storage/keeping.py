"""Responses to be kept, and a clock that a test turns."""

from typing import Any

from mlxcel.storage.responses import StoredResponse
from mlxcel.storage.shelf import Bounds

WIDE = Bounds(max_entries=100, max_bytes=1_000_000, ttl_s=0)


class Hand:
    """A clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def message(id: str, text: str = "hi", role: str = "user") -> dict[str, Any]:
    return {"id": id, "type": "message", "role": role, "content": text}


def response(id: str, previous: str | None = None, *, owner: str = "o") -> StoredResponse:
    """Its items are called after it."""
    return StoredResponse(
        id=id,
        owner=owner,
        previous_id=previous,
        body={"id": id, "output": [message(f"{id}-out", role="assistant")], "status": "completed"},
        input_items=[message(f"{id}-in")],
    )
