"""/v1/responses as a WebSocket: many responses on one connection."""

import logging

from sanic import Request

from mlxcel.http.deps import Deps
from mlxcel.http.responses_socket import ResponsesSocket
from mlxcel.http.routes import Row
from mlxcel.http.web_socket import OUR_FAULT, upgrade

log = logging.getLogger(__name__)


async def serve(request: Request, deps: Deps, row: Row) -> None:
    socket = await upgrade(request, deps)
    try:
        await ResponsesSocket(socket, request, deps).run()
    except Exception:
        # There is no answer of HTTP any more that an error could be.
        log.exception("the WebSocket at %s failed", request.path)
        await socket.close(OUR_FAULT)
