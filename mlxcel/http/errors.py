"""The border where exceptions become answers. The row's dialect picks the envelope; without a
row (404, 405), without a key and for a body that is too large it is OpenAI's."""

import logging
from typing import Any

from sanic import HTTPResponse, Request
from sanic.exceptions import (
    MethodNotAllowed as SanicMethodNotAllowed,
)
from sanic.exceptions import NotFound, PayloadTooLarge, RequestCancelled, SanicException

from mlxcel.core.errors import (
    BodyTooLarge,
    ErrorInfo,
    InvalidApiKey,
    MethodNotAllowed,
    MlxcelError,
    RouteNotFound,
    UpgradeRequired,
)
from mlxcel.http.head import is_read, leave_out_body, request_id, too_large
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import row_of
from mlxcel.protocols.base import Dialect
from mlxcel.protocols.openai import errors as openai

log = logging.getLogger(__name__)


def as_error(request: Request, exception: Exception) -> MlxcelError | None:
    """The exception in our words; None when there is none."""
    match exception:
        case MlxcelError():
            return exception
        case NotFound():
            return RouteNotFound(request.path)
        case SanicMethodNotAllowed():
            allowed = tuple(sorted(exception.allowed_methods or ()))
            return MethodNotAllowed(request.method, request.path, allowed)
        case PayloadTooLarge():
            return BodyTooLarge() if is_read(request) else too_large(request)
    return None


def error_info(request: Request, exception: Exception) -> ErrorInfo:
    """Logs what nobody foresaw, with its traceback; a client is told no internals."""
    error = as_error(request, exception)
    if error is not None:
        return error.info()
    if isinstance(exception, SanicException):
        status = exception.status_code or 500
        return ErrorInfo(code="http", status=status, message=str(exception))
    log.error(
        "%s %s failed (request %s)",
        request.method,
        request.path,
        request_id(request),
        exc_info=exception,
    )
    name = type(exception).__name__
    message = f"internal error ({name}); the server log has the traceback"
    return ErrorInfo(code="server_error", status=500, message=message)


def error_reply(request: Request, exception: Exception) -> HTTPResponse:
    leave_out_body(request)
    info = error_info(request, exception)
    headers = {}
    if isinstance(exception, SanicMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(exception.allowed_methods or ()))
    elif isinstance(exception, UpgradeRequired):
        headers["Upgrade"] = "websocket"
    return json_reply(_dialect(request, info).error_body(_printable(info)), info.status, headers)


class Unsent(HTTPResponse):
    """For a connection that broke while its answer was written. Sanic would write another, and
    stumbles over that where the request was a HEAD; without one it would wait for a body."""

    async def send(self, *_: Any, **__: Any) -> None:
        raise RequestCancelled


def broken_off(request: Request, exception: RequestCancelled) -> HTTPResponse:
    return Unsent(status=499)


def _dialect(request: Request, info: ErrorInfo) -> Dialect:
    row = row_of(request)
    is_general = info.status == InvalidApiKey.status or info.code == BodyTooLarge.code
    return openai if row is None or is_general else row.dialect


def _printable(info: ErrorInfo) -> ErrorInfo:
    """Bytes of a request line that are no UTF-8 arrive as lone surrogates, which JSON refuses."""
    message = info.message.encode("utf-8", "replace").decode("utf-8")
    return ErrorInfo(code=info.code, status=info.status, message=message, param=info.param)
