"""The error envelope of the routes of saved conversations: one text."""

from typing import Any

from mlxcel.core.errors import ErrorInfo


def error_body(error: ErrorInfo) -> dict[str, Any]:
    return {"detail": error.message}
