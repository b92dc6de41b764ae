"""What the head of a request tells: its id, and what is wrong with a head nobody could read."""

from sanic import Request

from mlxcel.core.errors import HeadersTooLarge, MlxcelError, UrlTooLong

REQUEST_ID = "X-Request-Id"
REQUEST_ID_CHARS = 256


def request_id(request: Request) -> str | None:
    """The client's own id, else ours where a route made one."""
    sent = request.headers.get(REQUEST_ID, "")
    if 0 < len(sent) <= REQUEST_ID_CHARS and sent.isascii() and sent.isprintable():
        return sent
    return getattr(request.ctx, "request_id", None)


def is_read(request: Request) -> bool:
    """False for the stand-in that Sanic makes of a head that is too large or no HTTP."""
    return bool(request.head)


def too_large(request: Request) -> MlxcelError:
    """For a head beyond Sanic's limit: the request line alone is, or all headers together."""
    limit: int = request.app.config.REQUEST_MAX_HEADER_SIZE
    has_line = b"\r\n" in request.stream.recv_buffer[:limit]
    return HeadersTooLarge(limit) if has_line else UrlTooLong(limit)
