"""Bodies of the routes of saved conversations (seed-kamiwaza, 6)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.kamiwaza.asked import read_id

MIB = 1 << 20
MOST_BYTES = 1 << 62
"""As good as no bound; JSON has numbers whose product is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveBody:
    id: str
    title: str | None = None
    budget_bytes: int | None = None
    """For this call alone; None: the server's."""
    is_unlimited: bool = False
    """The size of the one conversation is not bounded."""


def read_save(body: Mapping[str, Any]) -> SaveBody:
    """Raises BadRequest."""
    fields = Reader(body)
    budget = fields.number("budget_mb", minimum=0)
    return SaveBody(
        id=read_required_id(body),
        title=fields.string("title"),
        budget_bytes=None if budget is None else int(min(budget * MIB, MOST_BYTES)),
        is_unlimited=fields.boolean("override_limit") or False,
    )


def read_required_id(body: Mapping[str, Any]) -> str:
    """Raises BadRequest."""
    conversation = read_id(Reader(body))
    if conversation is None:
        raise BadRequest("no conversation id: send conversation or conversation_id")
    return conversation


def saved_body(facts: Mapping[str, Any]) -> dict[str, Any]:
    """`facts`: id, path, bytes, meta_bytes, tokens."""
    return {"status": "saved", **facts}


def loaded_body(facts: Mapping[str, Any]) -> dict[str, Any]:
    """`facts`: id, tokens, has_boundary, has_hashes."""
    return {"status": "loaded", **facts}


def list_body(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each: id, title, tokens, ts, size_bytes, path, prefix."""
    return {"items": [dict(item) for item in items]}


def deleted_body(conversation: str, *, was_there: bool) -> dict[str, Any]:
    return {"status": "deleted" if was_there else "not_found", "id": conversation}
