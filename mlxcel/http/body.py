"""Request bodies: the media type is checked first, then the JSON is parsed."""

from collections.abc import Mapping
from typing import Any

import orjson
from sanic import Request

from mlxcel.core.errors import BadRequest, UnsupportedMediaType
from mlxcel.protocols.fields import json_type

MESSAGE_BYTES = 1024
SHORT_BYTES = 1 << 20
"""Some 10 ms of work, in which all others wait."""


def json_value(request: Request) -> Any:
    """The parsed body. Raises UnsupportedMediaType, or BadRequest with the parser's words."""
    content_type = request.headers.get("content-type")
    if content_type is None or not _is_json(content_type):
        raise UnsupportedMediaType(content_type)
    return any_json(request)


def any_json(request: Request) -> Any:
    """For routes that look at no media type. Raises BadRequest with the parser's words."""
    try:
        return orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(cut(f"the body is not JSON: {error}", MESSAGE_BYTES)) from error


def short_json(request: Request) -> Any:
    """The same, where a name or a short list is all there may be. Raises BadRequest."""
    if len(request.body) > SHORT_BYTES:
        size = len(request.body)
        raise BadRequest(f"the body is {size} bytes long; at most {SHORT_BYTES} on this route")
    return any_json(request)


def json_object(request: Request) -> Mapping[str, Any]:
    value = json_value(request)
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a JSON object, got {json_type(value)}")
    return value


def _is_json(content_type: str) -> bool:
    media = content_type.split(";", 1)[0].strip().lower()
    structured = media.startswith("application/") and media.endswith("+json")
    return media == "application/json" or structured


def cut(text: str, limit_bytes: int) -> str:
    """The text in at most that many bytes, ending on a character boundary."""
    return text.encode("utf-8")[:limit_bytes].decode("utf-8", "ignore")
