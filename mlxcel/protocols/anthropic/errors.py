"""The error envelope of Anthropic's Messages."""

from typing import Any

from mlxcel.core.errors import ErrorInfo

TYPES = {
    "not_implemented": "not_implemented",
    "not_supported": "not_supported_error",
    "server_busy": "overloaded_error",
    "request_memory_budget_exceeded": "overloaded_error",
    "decode_timeout": "timeout_error",
    "answer_timeout": "timeout_error",
}
"""Our codes whose wire type the status alone does not give."""
BY_STATUS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}


def error_type(error: ErrorInfo) -> str:
    if error.code in TYPES:
        return TYPES[error.code]
    fallback = "api_error" if error.status >= 500 else "invalid_request_error"
    return BY_STATUS.get(error.status, fallback)


def error_body(error: ErrorInfo) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": error_type(error), "message": error.message},
    }
