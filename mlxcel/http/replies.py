"""Answers as bytes: JSON through orjson."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sanic import HTTPResponse


def json_reply(
    body: Mapping[str, Any] | Sequence[Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTTPResponse:
    return HTTPResponse(
        orjson.dumps(body),
        status=status,
        headers=dict(headers) if headers else None,
        content_type="application/json",
    )
