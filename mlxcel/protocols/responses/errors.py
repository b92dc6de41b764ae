"""The error envelope of the Responses routes: OpenAI's, with a word of its own for a missing id."""

from typing import Any

from mlxcel.core.errors import ErrorInfo
from mlxcel.protocols.openai import errors as openai

NOT_FOUND = "not_found"
PARAMS = {"messages": "input"}
"""Of errors found in the turns that were made of the items: the field the client knows."""
CANCELLED = "cancelled"
"""The code of a failure that is none: somebody asked for the end of a running response."""
PREVIOUS_NOT_FOUND = "previous_response_not_found"
CONNECTION_LIMIT = "websocket_connection_limit_reached"
STREAM_LIMIT = "websocket_stream_limit_reached"
OWN_CODES = frozenset({PREVIOUS_NOT_FOUND, CONNECTION_LIMIT, STREAM_LIMIT})
"""Codes that OpenAI has on these routes alone."""
CODES = {
    "server_busy": "server_overloaded",
    "request_memory_budget_exceeded": "server_overloaded",
    "context_length_exceeded": "context_length_exceeded",
}
"""Our codes whose word in a failed response is another than `server_error`."""


def error_body(error: ErrorInfo) -> dict[str, Any]:
    body = openai.error_body(error)
    if error.code == NOT_FOUND:
        body["error"]["type"] = NOT_FOUND
    if error.param in PARAMS:
        body["error"]["param"] = PARAMS[error.param]
    if error.code in OWN_CODES:
        body["error"]["code"] = error.code
    return body


def response_error(error: ErrorInfo) -> dict[str, Any] | None:
    """The field `error` of a response that failed after its stream had begun."""
    if error.code == CANCELLED:
        return None
    fallback = "invalid_prompt" if error.status < 500 else "server_error"
    return {"code": CODES.get(error.code, fallback), "message": error.message}
