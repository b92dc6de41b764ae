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
LAST_WORD_S = 2.0
"""How long a reader that has stopped reading may hold up the end of its stream."""


async def generate(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    _keep_reading(request)
    with deps.inflight.enter() as ticket, ticket.cut_as_error():
        read = _read(request, deps, row)
        head = Head(id=read.request.id, created=int(time.time()), model=_generator(deps).model.id)
        # Closing the iterator frees the slot: at the end, on a failure, when the client left.
        async with aclosing(_events(deps, read)) as events:
            if not read.stream:
                return json_reply(await _answer(read, head, events))
            first = await _first(events)
            writer = await SseWriter.open(request, deps.options.ping_interval_s)
            await _pump(request, ticket, writer, read.encoder(head), first, events)
    return None


def _keep_reading(request: Request) -> None:
    """Sanic pauses reading when a body fills its buffer and, the body being complete, never
    resumes: a client that leaves would go unnoticed until the next write."""
    request.transport.resume_reading()


def _generator(deps: Deps) -> Generator:
    assert deps.generate is not None, "rows that need `generate` are not mounted without it"
    return deps.generate


def _read(request: Request, deps: Deps, row: Row) -> Read:
    received_s = time.monotonic()
    request_id = f"chatcmpl-{uuid.uuid4()}"
    request.ctx.request_id = request_id
    assert row.codec is not None, "checked when the rows were read"
    return row.codec.read(
        json_object(request),
        request_id=request_id,
        settings=deps.settings.current,
        received_s=received_s,
        rules=ReadRules(
            require_model=deps.options.routes["require_model"],
            served=_generator(deps).model.names,
            refuse_unknown=deps.options.routes["unknown_model"] == "refuse",
        ),
    )


def _events(deps: Deps, read: Read) -> AsyncGenerator[Event, None]:
    return _generator(deps).generate(read.request)


async def _answer(read: Read, head: Head, events: AsyncGenerator[Event, None]) -> dict[str, object]:
    got = await collect(events)
    return read.answer(head, text=got.text, reason=got.reason, usage=got.usage, timings=got.timings)


async def _first(events: AsyncGenerator[Event, None]) -> Event:
    """Until it is here the answer can still be an error with its own status."""
    first = await anext(events, None)
    if first is None:
        raise GenerationFailed("there was no event")
    if isinstance(first, Failed):
        raise RemoteError(first.error)
    return first


async def _pump(
    request: Request,
    ticket: Ticket,
    writer: SseWriter,
    encoder: StreamEncoder,
    first: Event,
    events: AsyncGenerator[Event, None],
) -> None:
    """Headers are out: whatever goes wrong now is told inside the stream (Sanic would drop the
    answer of an error handler and truncate the body)."""
    try:
        with ticket.cut_as_error():
            await writer.send(encoder.encode(first))
            async for event in events:
                await writer.send(encoder.encode(event))
    except Exception as error:
        await _last_words(request, writer, encoder.encode(Failed(error_info(request, error))))
    finally:
        writer.stop_pings()
    await writer.end()


async def _last_words(request: Request, writer: SseWriter, frames: Iterable[SseFrame]) -> None:
    try:
        async with asyncio.timeout(LAST_WORD_S):
            await writer.send(frames)
    except TimeoutError:
        log.info("a client that has stopped reading is cut off without its error event")
        request.transport.abort()
