"""WebSockets on our routes: a handshake with our own refusals and headers, then whole messages.

Frames are Sanic's and the websockets package's business; nothing is known of what messages say.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from sanic import Request
from sanic.exceptions import RequestCancelled, SanicException
from sanic.server.protocols.websocket_protocol import WebSocketProtocol
from sanic.server.websockets.impl import WebsocketImplProtocol
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State
from websockets.server import ServerProtocol

from mlxcel.core.errors import BadRequest, OriginRefused, UpgradeRequired
from mlxcel.http.cors import CorsPolicy
from mlxcel.http.deps import Deps
from mlxcel.http.head import REQUEST_ID, request_id

log = logging.getLogger(__name__)
PING_S = 20.0
"""For the sake of proxies. Nobody is cut off for an answer that does not come: clients that read
only while they wait for a response give none while their tools run."""
CLOSE_S = 2.0
"""For a word of goodbye, ours or the client's."""
GOING_AWAY, BAD_TEXT, OUR_FAULT = 1001, 1007, 1011
"""Codes of a close (RFC 6455, 7.4.1)."""


async def upgrade(request: Request, deps: Deps) -> "WebSocket":
    """Nothing was sent when it raises: UpgradeRequired, OriginRefused or BadRequest."""
    headers = request.headers
    is_asked = headers.get("upgrade", "").strip().lower() == "websocket"
    if not is_asked or request.version != "1.1":
        raise UpgradeRequired(request.path)
    if not CorsPolicy(deps.options.cors).lets_in(headers.get("origin"), headers.get("host")):
        raise OriginRefused(headers["origin"])
    rules = ServerProtocol(
        state=State.OPEN, max_size=deps.options.body_bytes, logger=logging.getLogger("websockets")
    )
    answer = rules.accept(WebSocketProtocol.sanic_request_to_ws_request(request))
    if answer.status_code == UpgradeRequired.status:
        raise UpgradeRequired(request.path)
    if answer.status_code != 101:
        raise BadRequest(f"no handshake of a WebSocket: {rules.handshake_exc}")
    answer.headers[REQUEST_ID] = request_id(request)
    wire: WebSocketProtocol = request.transport.get_protocol()
    # Reading may have been paused for a body.
    request.transport.resume_reading()
    await wire.send(answer.serialize())
    wire.websocket = _Frames(rules, ping_interval=PING_S, ping_timeout=None, close_timeout=CLOSE_S)
    await wire.websocket.connection_made(wire)
    if wire.recv_buffer:
        # Sent before the answer was there.
        wire.websocket.data_received(bytes(wire.recv_buffer))
    return WebSocket(wire.websocket)


class _Frames(WebsocketImplProtocol):
    """Sanic 25 leaves a connection as it is whose text is no UTF-8: nothing is read any more, and
    nobody is told."""

    async def process_events(self, events: Sequence[Any]) -> None:
        try:
            await super().process_events(events)
        except UnicodeDecodeError:
            self.fail_connection(BAD_TEXT, "text is UTF-8")
            if self.recv_cancel is not None:
                self.recv_cancel.cancel()


class WebSocket:
    """One connection. One task reads, any number write."""

    def __init__(self, frames: WebsocketImplProtocol) -> None:
        self._frames = frames

    async def receive(self) -> str | bytes | None:
        """The next message; None: there will be none."""
        try:
            message: str | bytes = await self._frames.recv()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Sanic's word for a client that has closed.
            return None
        except (SanicException, ConnectionClosed):
            return None
        return message

    async def send(self, text: str) -> None:
        """A slow reader is waited for here. One that has left ends the work of who sends, as it
        does on a response of HTTP."""
        try:
            await self._frames.send(text)
        except (SanicException, ConnectionClosed):
            raise RequestCancelled from None

    async def close(self, code: int, reason: str = "") -> None:
        """The word of it alone: the client has one too, after which there is nothing to receive."""
        with contextlib.suppress(TimeoutError, SanicException, ConnectionClosed):
            async with asyncio.timeout(CLOSE_S):
                await self._frames.close(code, reason)
