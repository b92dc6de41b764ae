"""What is done with a slot, and the answers: `/slots/{id}?action=`. Messages are fixed text."""

import json
import re
from enum import StrEnum
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.core.ports import SlotFile

DIGITS = re.compile("0*([0-9]+)")
MOST_DIGITS = 9
"""No server has that many slots; Python refuses to read thousands of digits."""

MOST_BODY_BYTES = 65_536
"""Ten times what the longest name takes, however it is escaped; longer ones are cut off."""


class SlotAction(StrEnum):
    SAVE = "save"
    RESTORE = "restore"
    ERASE = "erase"


def read_slot(text: str, slots: int) -> int:
    """The id of one of so many slots; what follows its digits is ignored. Raises BadRequest."""
    found = DIGITS.match(text)
    if found is not None and len(found[1]) <= MOST_DIGITS and int(found[1]) < slots:
        return int(found[1])
    raise BadRequest("Invalid slot ID")


def read_action(word: str | None) -> SlotAction:
    """Raises BadRequest."""
    for action in SlotAction:
        if action.value == word:
            return action
    raise BadRequest("Invalid action")


def read_filename(body: bytes) -> str:
    """The media type does not matter. Whether the name is a safe one is not judged here.
    Raises BadRequest."""
    try:
        asked = json.loads(body[:MOST_BODY_BYTES])
    except (ValueError, RecursionError):
        asked = None
    name = asked.get("filename") if isinstance(asked, dict) else None
    if not isinstance(name, str):
        raise BadRequest("Invalid filename")
    return name


def saved_body(slot: int, name: str, file: SlotFile) -> dict[str, Any]:
    return {
        "id_slot": slot,
        "filename": name,
        "n_saved": file.tokens,
        "n_written": file.size_bytes,
        "timings": {"save_ms": file.took_ms},
    }


def restored_body(slot: int, name: str, file: SlotFile) -> dict[str, Any]:
    return {
        "id_slot": slot,
        "filename": name,
        "n_restored": file.tokens,
        "n_read": file.size_bytes,
        "timings": {"restore_ms": file.took_ms},
    }


def erased_body(slot: int, tokens: int) -> dict[str, Any]:
    return {"id_slot": slot, "n_erased": tokens}
