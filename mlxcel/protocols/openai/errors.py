"""The OpenAI error envelope. Every answer of ours that is no success has it, unless its dialect
has another."""

from typing import Any

from mlxcel.core.errors import ErrorInfo

TYPES = {
    "invalid_api_key": "invalid_api_key",
    "not_found": "not_found_error",
    "not_implemented": "not_implemented",
    "not_supported": "not_supported_error",
    "server_busy": "server_busy",
    "request_memory_budget_exceeded": "request_memory_budget_exceeded",
    "unavailable": "unavailable_error",
    "decode_timeout": "server_timeout",
    "answer_timeout": "server_timeout",
}
"""Our codes whose wire type the status alone does not give."""

WIRE_CODES = frozenset({"context_length_exceeded", "model_not_found", "invalid_api_key"})
"""Codes that OpenAI has as well; the others stay null on the wire."""


def error_type(error: ErrorInfo) -> str:
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"
    return TYPES.get(error.code, fallback)


def error_body(error: ErrorInfo) -> dict[str, Any]:
    return {
        "error": {
            "message": error.message,
            "type": error_type(error),
            "param": error.param,
            "code": error.code if error.code in WIRE_CODES else None,
        }
    }
