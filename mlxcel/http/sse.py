"""A stream of server-sent events over one Sanic response.

Knows frames and silence. Knows no dialect.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from time import monotonic

import orjson
from sanic import Request
from sanic.response import BaseHTTPResponse

from mlxcel.http.unchunked import end_with_connection
from mlxcel.protocols.base import SseFrame

log = logging.getLogger(__name__)
PING = b":\n\n"
HEADERS = {
    "Cache-Control": "no-cache",
    # A proxy that buffers would hold the tokens back.
    "X-Accel-Buffering": "no",
}


def frame_bytes(frame: SseFrame) -> bytes:
    data = frame.data.encode() if isinstance(frame.data, str) else orjson.dumps(frame.data)
    event = f"event: {frame.event}\n".encode() if frame.event is not None else b""
    return event + b"data: " + data + b"\n\n"


class SseWriter:
    """Writes frames, each send awaiting the transport, and a comment after every silence of
    `ping_interval_s`, by the clock and whatever the sender does meanwhile.

    Status and headers leave with the first write, be it a frame or a comment.
    """

    def __init__(
        self, request: Request, ping_interval_s: float | None, headers: Mapping[str, str]
    ) -> None:
        self._request = request
        self._headers = {**HEADERS, **headers}
        self._interval_s = ping_interval_s
        self._last_s = monotonic()
        self._response: BaseHTTPResponse | None = None
        self._opening = asyncio.Lock()
        self._pinger: asyncio.Task[None] | None = None
        self._is_sending = False

    @property
    def is_open(self) -> bool:
        """Headers are out: an error can no longer be an answer with its own status."""
        return self._response is not None

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Over those it was made with; without effect once they are out."""
        self._headers |= headers

    def start_pings(self) -> None:
        if self._interval_s is not None:
            self._pinger = asyncio.create_task(self._ping(self._interval_s))

    def stop_pings(self) -> None:
        if self._pinger is not None:
            self._pinger.cancel()
            self._pinger = None

    async def send(self, frames: Iterable[SseFrame]) -> None:
        """One write for all frames. A slow reader is waited for here."""
        data = b"".join(frame_bytes(frame) for frame in frames)
        if data:
            await self.write(data)

    async def write(self, data: bytes) -> None:
        """Frames as they are. A slow reader is waited for here."""
        self._is_sending = True
        try:
            await (await self._opened()).send(data)
        finally:
            self._is_sending = False
        self._last_s = monotonic()

    async def end(self) -> None:
        """The last chunk of the body; the connection stays usable."""
        self.stop_pings()
        await (await self._opened()).eof()

    async def _opened(self) -> BaseHTTPResponse:
        # The pinger may be opening at the moment when the first frame is there.
        async with self._opening:
            if self._response is None:
                self._response = await self._request.respond(
                    status=200, headers=self._headers, content_type="text/event-stream"
                )
                if self._request.version == "1.0":
                    end_with_connection(self._request)
        assert self._response is not None
        return self._response

    async def _ping(self, interval_s: float) -> None:
        while True:
            silence_s = monotonic() - self._last_s
            if silence_s < interval_s:
                await asyncio.sleep(interval_s - silence_s)
                continue
            # A write that still waits for the reader is no silence of ours.
            if not self._is_sending:
                await (await self._opened()).send(PING)
            self._last_s = monotonic()
