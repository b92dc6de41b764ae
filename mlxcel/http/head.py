"""What the head of a request tells: its id, and what is wrong with a head nobody could read."""

import uuid
from typing import Any

from sanic import Request

from mlxcel.core.errors import HeadersTooLarge, MlxcelError, UrlTooLong

REQUEST_ID = "X-Request-Id"
REQUEST_ID_CHARS = 256


def request_id(request: Request) -> str:
    """The client's own id, else that of the answer where a route made one, else one made now."""
    sent = request.headers.get(REQUEST_ID, "")
    if 0 < len(sent) <= REQUEST_ID_CHARS and sent.isascii() and sent.isprintable():
        return sent
    own: str | None = getattr(request.ctx, "request_id", None)
    if own is None:
        own = request.ctx.request_id = f"req_{uuid.uuid4().hex}"
    return own


class ReadRequest(Request):
    """Sanic answers a head that it cannot read through a stand-in for the request. It would give
    it the same address: one that is no URL raised again, and the client got no answer at all."""

    def __init__(self, *, url_bytes: bytes, head: bytes = b"", **fields: Any) -> None:
        super().__init__(url_bytes=url_bytes if head else b"*", head=head, **fields)


def is_read(request: Request) -> bool:
    """False for the stand-in that Sanic makes of a head that is too large or no HTTP."""
    return bool(request.head)


def leave_out_body(request: Request) -> None:
    """An answer to HEAD has none, also where that word is all that could be read."""
    if not is_read(request) and request.stream.recv_buffer.startswith(b"HEAD "):
        request.stream.head_only = True


def too_large(request: Request) -> MlxcelError:
    """For a head beyond Sanic's limit: the request line alone is, or all headers together."""
    limit: int = request.app.config.REQUEST_MAX_HEADER_SIZE
    has_line = b"\r\n" in request.stream.recv_buffer[:limit]
    return HeadersTooLarge(limit) if has_line else UrlTooLong(limit)
