"""Which conversation a request belongs to, as far as its body says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.protocols.fields import Reader

ID_CHARS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    id: str | None = None
    is_reset: bool = False
    """The conversation is neither read nor kept this time."""


def read_asked(body: Mapping[str, Any]) -> Asked:
    """Raises BadField."""
    fields = Reader(body)
    return Asked(id=read_id(fields), is_reset=fields.boolean("reset_conversation") or False)


def read_id(fields: Reader) -> str | None:
    """The first of the two names that is not blank. Raises BadField."""
    sent = [clean_id(fields.string(name)) for name in ("conversation", "conversation_id")]
    return next((one for one in sent if one is not None), None)


def clean_id(sent: str | None) -> str | None:
    """Trimmed; blank is absent. Raises BadRequest for one that is too long."""
    trimmed = "" if sent is None else sent.strip()
    if len(trimmed) > ID_CHARS:
        raise BadRequest(
            f"a conversation id may have {ID_CHARS} characters, got {len(trimmed)}",
            param="conversation",
        )
    return trimmed if trimmed else None
