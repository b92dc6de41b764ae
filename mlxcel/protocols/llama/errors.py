"""The error envelope of the operational routes of llama-server: slots, props, metrics, adapters."""

from typing import Any

from mlxcel.core.errors import ErrorInfo

TYPES = {501: "not_supported_error", 503: "unavailable_error"}
"""By status; others are the client's fault below 500 and the server's from there on."""


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """`code` is the HTTP status here."""
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"
    kind = TYPES.get(error.status, fallback)
    return {"error": {"code": error.status, "message": error.message, "type": kind}}
