"""Bodies and errors of the routes that look after responses which are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadField, BadRequest, MlxcelError
from mlxcel.protocols.fields import shown
from mlxcel.protocols.responses.errors import CANCELLED, NOT_FOUND, PREVIOUS_NOT_FOUND
from mlxcel.protocols.responses.items import Item, is_bare_id

LIMIT = 20
LIMITS = range(1, 101)
ORDERS = ("asc", "desc")


class ResponseNotFound(MlxcelError):
    code = NOT_FOUND
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"no response {shown(id)} is kept here")


class ResponsesOff(BadRequest):
    def __init__(self, what: str, key: str, *, param: str | None = None) -> None:
        super().__init__(f"{what} are not kept here: {key}.max_entries is 0", param=param)
        if param == "previous_response_id":
            self.code = PREVIOUS_NOT_FOUND


class Cancelled(MlxcelError):
    """Somebody asked for the end of a response that is being streamed."""

    code = CANCELLED
    status = 409

    def __init__(self) -> None:
        super().__init__("the response was cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which of the items of a response are asked for."""

    limit: int = LIMIT
    is_newest_first: bool = True
    after: str | None = None


def read_page(limit: str | None, order: str | None, after: str | None) -> Page:
    """From a query. Raises BadField."""
    if limit is not None and not (limit.isdecimal() and limit.isascii() and len(limit) < 4):
        raise BadField("limit", f"wants an integer from 1 to 100; got {shown(limit)}")
    count = LIMIT if limit is None else int(limit)
    if count not in LIMITS:
        raise BadField("limit", f"wants an integer from 1 to 100; got {count}")
    if order is not None and order not in ORDERS:
        raise BadField("order", f"wants asc or desc; got {shown(order)}")
    return Page(limit=count, is_newest_first=order != "asc", after=after or None)


def refuse_replay(stream: str | None) -> None:
    """From a query. A client that waits for events would take the object for a stream without
    any. Raises BadField."""
    if stream is not None and stream.lower() not in ("", "false"):
        raise BadField("stream", "a response that is kept is told at once, never as events again")


def items_body(items: Sequence[Item], page: Page) -> dict[str, Any]:
    """Raises BadField for an item that is not among them."""
    ordered = [*reversed(items)] if page.is_newest_first else [*items]
    if page.after is not None:
        ids = [item["id"] for item in ordered]
        if page.after not in ids:
            raise BadField("after", f"there is no item {shown(page.after)} in this response")
        ordered = ordered[ids.index(page.after) + 1 :]
    data = ordered[: page.limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(ordered) > len(data),
    }


def deleted_body(id: str, *, was_there: bool) -> dict[str, Any]:
    return {"id": id, "object": "response.deleted", "deleted": was_there}


def stopped_body(id: str) -> dict[str, Any]:
    """Of a response that was running."""
    return {"id": id, "object": "response", "status": CANCELLED}


def count_body(tokens: int) -> dict[str, Any]:
    return {"object": "response.input_tokens", "input_tokens": tokens}


def referenced(body: Mapping[str, Any]) -> list[str]:
    """The ids of items that the input only names."""
    entries = body.get("input")
    return [
        entry["id"]
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
        and isinstance(entry.get("id"), str)
        and (entry.get("type") == "item_reference" or is_bare_id(entry))
    ]
