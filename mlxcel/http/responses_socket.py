"""One WebSocket on /v1/responses: creates come in, the events of their responses go out.

Responses of one stream follow each other, those of several run side by side. Of each stream the
last response is remembered, so that it can be gone on from without being kept.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson
from sanic import Request
from sanic.exceptions import RequestCancelled

from mlxcel.core.errors import BadRequest, ErrorInfo, MlxcelError, Unavailable
from mlxcel.http.body import MESSAGE_BYTES, cut
from mlxcel.http.deps import Deps
from mlxcel.http.errors import error_info
from mlxcel.http.generate import tell
from mlxcel.http.owner import owner_of
from mlxcel.http.reading import LARGE_BODY_BYTES, done
from mlxcel.http.responses_read import Found, Sent, keeper, read_response
from mlxcel.http.web_socket import CLOSE_S, GOING_AWAY, WebSocket
from mlxcel.protocols.base import Read, SseFrame
from mlxcel.protocols.fields import json_type
from mlxcel.protocols.responses import create as creation
from mlxcel.protocols.responses.socket import (
    STREAMS,
    UNANSWERED,
    ConnectionTooOld,
    Create,
    TooManyStreams,
    TooManyUnanswered,
    error_message,
    on_stream,
    read_create,
    read_stream_id,
)
from mlxcel.storage.responses import Item

FAILED = "response.failed"
CANCELLED = "cancelled"


@dataclass(slots=True)
class Stream:
    """`turn` is held by the response that runs; others wait for it in their order."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: tuple[str, Sequence[Item]] | None = None
    """The id of its last response, and all items up to the end of that."""


class Told:
    """Where the events of one response go."""

    def __init__(self, socket: WebSocket, stream_id: str | None) -> None:
        self._socket = socket
        self._words = on_stream(stream_id)
        self.is_open = False
        self.has_failed = False

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Those of the connection are out."""

    async def send(self, frames: Iterable[SseFrame]) -> None:
        for frame in frames:
            assert isinstance(frame.data, Mapping), "events of this dialect are objects"
            self.is_open = True
            if frame.event == FAILED:
                self.has_failed = frame.data["response"]["status"] != CANCELLED
            await self._socket.send(_text({**frame.data, **self._words}))


class ResponsesSocket:
    """Owned by the task that serves the connection."""

    def __init__(self, socket: WebSocket, request: Request, deps: Deps) -> None:
        self._socket = socket
        self._request = request
        self._deps = deps
        self._streams: dict[str | None, Stream] = {None: Stream()}
        self._running: set[asyncio.Task[None]] = set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._over: MlxcelError | None = None
        """Why nothing new is begun."""

    async def run(self) -> None:
        """Until the client leaves, the server drains or the connection is too old. What runs then
        is ended with the first, and may end by itself with the others."""
        reading = asyncio.create_task(self._read())
        ending = asyncio.create_task(self._ended())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not reading.done():
                await self._say_goodbye(reading)
        finally:
            left = (reading, ending, *self._running)
            for task in left:
                task.cancel()
            results = await asyncio.gather(*left, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                raise error

    async def _ended(self) -> None:
        age_s = self._deps.options.websocket_s
        try:
            async with asyncio.timeout(age_s):
                await self._deps.inflight.draining.wait()
            self._over = Unavailable("draining: the server is shutting down")
        except TimeoutError:
            assert age_s is not None
            self._over = ConnectionTooOld(age_s)
        await self._is_idle.wait()

    async def _say_goodbye(self, reading: asyncio.Task[None]) -> None:
        """With unread messages a connection ends in a reset, and the client may not learn why: so
        they are read until it says goodbye as well."""
        assert self._over is not None
        if isinstance(self._over, ConnectionTooOld):
            with contextlib.suppress(TimeoutError, RequestCancelled):
                async with asyncio.timeout(CLOSE_S):
                    await self._refuse(self._over.info(), None)
        await self._socket.close(GOING_AWAY, self._over.code)
        await asyncio.wait((reading,), timeout=CLOSE_S)

    async def _read(self) -> None:
        while (message := await self._socket.receive()) is not None:
            stream_id = None
            try:
                is_large = len(message) > LARGE_BODY_BYTES
                asked = await done(partial(_object, message), is_large=is_large)
                stream_id = read_stream_id(asked)
                self._begin(read_create(asked), len(message))
            except MlxcelError as error:
                await self._refuse(error.info(), stream_id)

    def _begin(self, asked: Create, size: int) -> None:
        """Raises what refuses it whatever it says."""
        if self._over is not None:
            raise self._over
        if len(self._running) >= UNANSWERED:
            raise TooManyUnanswered
        if asked.stream_id not in self._streams:
            if len(self._streams) > STREAMS:
                raise TooManyStreams
            self._streams[asked.stream_id] = Stream()
        task = asyncio.create_task(self._answer(asked, size, self._streams[asked.stream_id]))
        self._running.add(task)
        self._is_idle.clear()
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not self._running:
            self._is_idle.set()

    async def _answer(self, asked: Create, size: int, stream: Stream) -> None:
        told = Told(self._socket, asked.stream_id)
        async with stream.turn:
            try:
                reading = partial(self._understood, asked, size, stream)
                await tell(self._request, self._deps, reading, told)
            except Exception as error:
                told.has_failed = True
                await self._refuse(error_info(self._request, error), asked.stream_id)
            finally:
                if told.has_failed:
                    self._forget(asked.body.get("previous_response_id"))

    async def _understood(self, asked: Create, size: int, stream: Stream) -> Read:
        found = await read_response(
            self._request,
            self._deps,
            creation,
            Sent(parse=lambda: asked.body, size=size),
            id=creation.new_id(),
            remembered=self._remembered,
            is_warmup=asked.is_warmup,
        )
        keep = keeper(self._deps, owner_of(self._request, self._deps), found.read)

        def on_done(body: dict[str, Any]) -> None:
            if keep is not None:
                keep(body)
            _remember(stream, found, body)

        read: Read = replace(found.read, on_done=on_done)
        return read

    def _remembered(self, id: str) -> Sequence[Item] | None:
        lasts = (stream.last for stream in self._streams.values())
        return next((last[1] for last in lasts if last is not None and last[0] == id), None)

    def _forget(self, id: object) -> None:
        """What a response has failed to go on from: it is to be sent again as a whole."""
        for stream in self._streams.values():
            if stream.last is not None and stream.last[0] == id:
                stream.last = None

    async def _refuse(self, error: ErrorInfo, stream_id: str | None) -> None:
        await self._socket.send(_text(error_message(error, stream_id)))


def _remember(stream: Stream, found: Found, body: Mapping[str, Any]) -> None:
    items = [*found.history, *found.read.input_items, *body["output"]]
    stream.last = (body["id"], items)


def _object(message: str | bytes) -> dict[str, Any]:
    """Raises BadRequest."""
    if isinstance(message, bytes):
        raise BadRequest("messages are JSON as text; this one is binary")
    try:
        value = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise BadRequest(cut(f"the message is not JSON: {error}", MESSAGE_BYTES)) from error
    if not isinstance(value, dict):
        raise BadRequest(f"a message must be a JSON object, got {json_type(value)}")
    return value


def _text(message: Mapping[str, Any]) -> str:
    return orjson.dumps(message).decode()
