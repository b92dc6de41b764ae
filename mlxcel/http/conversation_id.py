"""Whose conversation a request is, where its body does not say (seed-kamiwaza, 5)."""

from sanic import Request

from mlxcel.core.conversations import IdRules
from mlxcel.protocols.kamiwaza.asked import clean_id

HEADER = "X-Conversation-Id"


def conversation_named(request: Request) -> str | None:
    """The header's. Raises BadRequest for an id too long."""
    return clean_id(request.headers.get(HEADER))


def conversation_of_address(request: Request, rules: IdRules) -> str | None:
    """That of the client's address: two clients behind one address share it. None where nothing
    binds requests by themselves."""
    if not rules.has_auto:
        return None
    # Over a Unix socket there is no address.
    return f"client:{request.ip}" if request.ip else rules.fixed
