"""Bodies and queries of the routes over streams that are kept (http-native, 13)."""

import re
from typing import Any

from mlxcel.core.errors import BadRequest, MlxcelError

OFFSET = re.compile(r"\s*\+?(\d+)")
"""As `strtoull` reads a number: what stands behind it is ignored."""
OFFSET_DIGITS = 18


class StreamNotFound(MlxcelError):
    code = "not_found"
    status = 404

    def __init__(self) -> None:
        super().__init__("Stream not found or expired")


def read_conversation(sent: str | None) -> str:
    if not sent:
        raise BadRequest("Missing conversation id in path", param="conv_id")
    return sent


def read_offset(sent: str | None) -> int:
    """Bytes from the start of the stream."""
    if not sent:
        return 0
    found = OFFSET.match(sent)
    if found is None:
        raise BadRequest("Invalid 'from' offset", param="from")
    return int(found[1][-OFFSET_DIGITS:] if len(found[1]) <= OFFSET_DIGITS else "9" * OFFSET_DIGITS)


def read_names(value: object) -> tuple[str, ...]:
    """What is no list of names asks about nothing."""
    names = value.get("conversation_ids") if isinstance(value, dict) else None
    if not isinstance(names, list):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def stream_body(
    conversation: str, *, is_done: bool, total_bytes: int, started_at: int, completed_at: int
) -> dict[str, Any]:
    return {
        "conversation_id": conversation,
        "is_done": is_done,
        "total_bytes": total_bytes,
        "started_at": started_at,
        "completed_at": completed_at,
    }
