"""The one handler of all generation routes: read, generate, answer as JSON or as a stream."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from sanic import HTTPResponse, Request

from mlxcel.core.errors import GenerationFailed, RemoteError
from mlxcel.core.events import Event, Failed
from mlxcel.core.ports import Generator
from mlxcel.core.request import Lane
from mlxcel.generation.collect import collect
from mlxcel.http.body import json_object
from mlxcel.http.deps import Deps
from mlxcel.http.errors import error_info
from mlxcel.http.inflight import Ticket
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.http.sse import SseWriter
from mlxcel.protocols.base import Head, Read, ReadRules, SseFrame, StreamEncoder

log = logging.getLogger(__name__)
PRIORITY = "X-Priority"
LAST_WORD_S = 2.0
"""How long a reader that has stopped reading may hold up the end of its stream."""


async def generate(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    _keep_reading(request)
    with deps.inflight.enter() as ticket, ticket.cut_as_error():
        generator: Generator = deps.ports["generate"]
        read = _read(request, deps, row, served=generator.model.names)
        head = Head(id=read.request.id, created=int(time.time()), model=generator.model.id)
        # Closing the iterator frees the slot: at the end, on a failure, when the client left.
        async with aclosing(generator.generate(read.request)) as events:
            if not read.stream:
                return json_reply(read.answer(head, await collect(events)))
            writer = SseWriter(request, deps.options.ping_interval_s)
            await _pump(request, ticket, writer, read.encoder(head), events)
    return None


def _keep_reading(request: Request) -> None:
    """Sanic pauses reading when a body fills its buffer and, the body being complete, never
    resumes: a client that leaves would go unnoticed until the next write."""
    request.transport.resume_reading()


def _read(request: Request, deps: Deps, row: Row, *, served: tuple[str, ...]) -> Read:
    received_s = time.monotonic()
    assert row.codec is not None, "checked when the rows were read"
    request_id = f"{row.codec.ID_PREFIX}{uuid.uuid4()}"
    request.ctx.request_id = request_id
    return row.codec.read(
        json_object(request),
        request_id=request_id,
        settings=deps.settings.current,
        received_s=received_s,
        rules=ReadRules(
            require_model=deps.options.routes["require_model"],
            served=served,
            refuse_unknown=deps.options.routes["unknown_model"] == "refuse",
            fixed=deps.options.fixed,
            reasoning_alias=deps.options.reasoning_alias,
        ),
        lane=_lane(request),
    )


def _lane(request: Request) -> Lane:
    """Unknown words count as none: whoever misspells a wish is served all the same."""
    asked: str = request.headers.get(PRIORITY, "")
    return Lane.__members__.get(asked.strip().upper(), Lane.NORMAL)


async def _pump(
    request: Request,
    ticket: Ticket,
    writer: SseWriter,
    encoder: StreamEncoder,
    events: AsyncGenerator[Event, None],
) -> None:
    """Until headers are out an error is an answer with its own status. From then on it is told
    inside the stream (Sanic would drop the answer of an error handler and truncate the body).

    A worker in a long step cannot say that it took the request: after a ping interval without
    a first event the headers leave all the same, for the sake of proxies.
    """
    writer.start_pings()
    try:
        with ticket.cut_as_error():
            await _send_all(writer, encoder, events)
    except Exception as error:
        if not writer.is_open:
            raise
        await _last_words(request, writer, encoder.encode(Failed(error_info(request, error))))
    finally:
        writer.stop_pings()
    await writer.end()


async def _send_all(
    writer: SseWriter, encoder: StreamEncoder, events: AsyncGenerator[Event, None]
) -> None:
    is_first = True
    async for event in events:
        if is_first and isinstance(event, Failed):
            raise RemoteError(event.error)
        is_first = False
        await writer.send(encoder.encode(event))
    if is_first:
        raise GenerationFailed("there was no event")


async def _last_words(request: Request, writer: SseWriter, frames: Iterable[SseFrame]) -> None:
    try:
        async with asyncio.timeout(LAST_WORD_S):
            await writer.send(frames)
    except TimeoutError:
        log.info("a client that has stopped reading is cut off without its error event")
        request.transport.abort()
