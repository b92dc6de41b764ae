"""Types of errors by status and code (http-anthropic, 2)."""

import pytest

from mlxcel.core.errors import ErrorInfo
from mlxcel.protocols.anthropic.errors import error_body


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("bad_request", 400, "invalid_request_error"),
        ("x", 415, "invalid_request_error"),
        ("x", 409, "invalid_request_error"),
        ("invalid_api_key", 401, "authentication_error"),
        ("model_not_found", 404, "not_found_error"),
        ("x", 413, "request_too_large"),
        ("generation_failed", 500, "api_error"),
        ("not_implemented", 501, "not_implemented"),
        ("not_supported", 501, "not_supported_error"),
        ("server_busy", 503, "overloaded_error"),
        ("worker_died", 503, "api_error"),
    ],
)
def test_types(code: str, status: int, kind: str) -> None:
    error = ErrorInfo(code=code, status=status, message="m", param="p")
    assert error_body(error) == {"type": "error", "error": {"type": kind, "message": "m"}}
