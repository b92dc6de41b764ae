"""Streams for HTTP/1.0, which knows no chunks (RFC 9112, section 6.1): the end of the connection
is the end of the body. Sanic 25 chunks whatever has no length, so its writer is replaced.
"""

from functools import partial

from sanic import Request
from sanic.headers import format_http1_response
from sanic.http import Http, Stage


def end_with_connection(request: Request) -> None:
    """Call after `request.respond` and before the first byte."""
    stream: Http = request.stream
    stream.keep_alive = False
    stream.response_func = partial(_write_first, stream)


async def _write_first(stream: Http, data: bytes, end_stream: bool) -> None:
    response = stream.response
    response.headers["connection"] = "close"
    head = format_http1_response(response.status, response.processed_headers)
    stream.stage = Stage.RESPONSE
    stream.response_func = partial(_write, stream)
    await _write(stream, head + data, end_stream)


async def _write(stream: Http, data: bytes, end_stream: bool) -> None:
    if data:
        await stream.protocol.send(data)
    if end_stream:
        stream.response_func = None
        stream.stage = Stage.IDLE
