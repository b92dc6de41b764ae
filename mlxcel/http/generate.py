"""The one handler of all generation routes: read, generate, answer as JSON or as a stream."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import Protocol

from sanic import HTTPResponse, Request

from mlxcel.core.answer import Answer
from mlxcel.core.errors import GenerationFailed, RemoteError, Unavailable
from mlxcel.core.events import Accepted, Event, Failed
from mlxcel.core.ports import Generator
from mlxcel.generation.collect import collect
from mlxcel.generation.together import generate_all
from mlxcel.http.conversation_id import HEADER as CONVERSATION
from mlxcel.http.deps import Deps
from mlxcel.http.errors import error_info
from mlxcel.http.headers import answer_headers, early_headers
from mlxcel.http.inflight import Ticket
from mlxcel.http.live import LiveAnswer
from mlxcel.http.metered import metered
from mlxcel.http.owner import owner_of
from mlxcel.http.reading import done, read_request
from mlxcel.http.replies import json_reply
from mlxcel.http.resumable import StreamSession
from mlxcel.http.routes import Row
from mlxcel.http.sse import SseWriter, frame_bytes
from mlxcel.protocols.base import Head, Read, SseFrame, StreamEncoder

log = logging.getLogger(__name__)
LARGE_ANSWER_ENTRIES = 2048
"""Some 10 ms of work: what is larger is written on a thread."""
LAST_WORD_S = 2.0
"""How long a reader that has stopped reading may hold up the end of its stream."""


class Sink(Protocol):
    """Where the frames of a stream go."""

    def set_headers(self, headers: Mapping[str, str]) -> None: ...

    async def send(self, frames: Iterable[SseFrame]) -> None: ...


class OpenSink(Sink, Protocol):
    @property
    def is_open(self) -> bool:
        """The client has been told something."""
        ...


async def generate(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    return await respond(request, deps, lambda: read_request(request, deps, row))


async def respond(
    request: Request, deps: Deps, reading: Callable[[], Awaitable[Read]]
) -> HTTPResponse | None:
    """What a request asks for, once `reading` has understood it; a drain waits for both."""
    _keep_reading(request)
    with deps.inflight.enter() as ticket, ticket.cut_as_error():
        read = await reading()
        head = _head(deps, read)
        # Whoever names a conversation may come back for its stream.
        conversation = request.headers.get(CONVERSATION, "") if read.stream else ""
        if not conversation:
            return await _answer(request, deps, ticket, read, head)
    await _answer_resumably(request, deps, read, head, conversation)
    return None


async def tell(
    request: Request, deps: Deps, reading: Callable[[], Awaitable[Read]], sink: OpenSink
) -> None:
    """The same into a stream that is there already. Raises what came before its first frame."""
    with deps.inflight.enter() as ticket, ticket.cut_as_error():
        read = await reading()
        await _into(sink, request, deps, ticket, read, _head(deps, read))


def _head(deps: Deps, read: Read) -> Head:
    generator: Generator = deps.ports["generate"]
    return Head(id=read.requests[0].id, created=int(time.time()), model=generator.model.id)


async def _answer(
    request: Request, deps: Deps, ticket: Ticket, read: Read, head: Head
) -> HTTPResponse | None:
    if read.stream:
        await _stream(request, deps, ticket, read, head)
        return None
    # Closing the iterator frees the slot: at the end, on a failure, when the client left.
    async with aclosing(_events(deps, read)) as events:
        answer = await collect(events)
        is_large = _entries(answer) > LARGE_ANSWER_ENTRIES
        return await done(partial(_reply, read, head, answer), is_large=is_large)


async def _stream(request: Request, deps: Deps, ticket: Ticket, read: Read, head: Head) -> None:
    """A worker in a long step cannot say that it took the request: after a ping interval without
    a first event the headers leave all the same, for the sake of proxies."""
    writer = _writer(request, deps, read)
    writer.start_pings()
    try:
        await _into(writer, request, deps, ticket, read, head)
    finally:
        writer.stop_pings()
    await writer.end()


def _events(deps: Deps, read: Read) -> AsyncGenerator[Event, None]:
    generator: Generator = deps.ports["generate"]
    return metered(generate_all(generator, read.requests), deps.meter, is_counted=read.is_counted)


def _live(
    request: Request, deps: Deps, ticket: Ticket, read: Read, head: Head
) -> AbstractContextManager[None]:
    is_controllable = read.requests[0].is_controllable
    answer = LiveAnswer(owner_of(request, deps), is_controllable, ticket.cut)
    return deps.live.enter(head.id, answer)


def _reply(read: Read, head: Head, answer: Answer) -> HTTPResponse:
    headers = answer_headers(
        read, prompt_tokens=answer.usage.prompt_tokens, report=answer.timings.cache
    )
    return json_reply(read.answer(head, answer), headers=headers)


def _writer(request: Request, deps: Deps, read: Read) -> SseWriter:
    asked = read.ping_s
    interval = deps.options.ping_interval_s if asked is None else asked or None
    return SseWriter(request, interval, early_headers(read))


def _keep_reading(request: Request) -> None:
    """Sanic pauses reading when a body fills its buffer and, the body being complete, never
    resumes: a client that leaves would go unnoticed until the next write."""
    request.transport.resume_reading()


def _entries(answer: Answer) -> int:
    """Of log-probabilities: they make an answer a hundred times as large as its text."""
    return sum(
        sum(1 + len(token.top) for token in choice.logprobs)
        + sum(1 + len(token.top) for token in choice.prompt)
        for choice in answer.choices
    )


async def _into(
    sink: OpenSink, request: Request, deps: Deps, ticket: Ticket, read: Read, head: Head
) -> None:
    """Until the stream is open an error is an answer with its own status. From then on it is told
    inside the stream (Sanic would drop the answer of an error handler and truncate the body)."""
    encoder = read.encoder(head)
    try:
        await _flow(sink, encoder, request, deps, ticket, read, head)
    except Exception as error:
        if not sink.is_open:
            raise
        await _last_words(request, sink, encoder.encode(Failed(error_info(request, error))))


async def _flow(
    sink: Sink,
    encoder: StreamEncoder,
    request: Request,
    deps: Deps,
    ticket: Ticket,
    read: Read,
    head: Head,
) -> None:
    async with aclosing(_events(deps, read)) as events:
        # Who may cut the answer may not do so once its end is told.
        with ticket.cut_as_error(), _live(request, deps, ticket, read, head):
            await _send_all(sink, encoder, read, events)


async def _send_all(
    sink: Sink,
    encoder: StreamEncoder,
    read: Read,
    events: AsyncGenerator[Event, None],
) -> None:
    is_first = True
    async for event in events:
        if is_first and isinstance(event, Failed):
            raise RemoteError(event.error)
        is_first = False
        if isinstance(event, Accepted):
            headers = answer_headers(read, prompt_tokens=event.prompt_tokens, report=event.cache)
            sink.set_headers(headers)
        await sink.send(encoder.encode(event))
    if is_first:
        raise GenerationFailed("there was no event")


async def _last_words(request: Request, sink: Sink, frames: Iterable[SseFrame]) -> None:
    try:
        async with asyncio.timeout(LAST_WORD_S):
            await sink.send(frames)
    except TimeoutError:
        log.info("a client that has stopped reading is cut off without its error event")
        request.transport.abort()


class SessionSink:
    """A stream that is kept: nobody need read it while it is written."""

    def __init__(self, session: StreamSession) -> None:
        self._session = session

    def set_headers(self, headers: Mapping[str, str]) -> None:
        self._session.headers |= headers

    async def send(self, frames: Iterable[SseFrame]) -> None:
        data = b"".join(frame_bytes(frame) for frame in frames)
        if data:
            self._session.write(data)


async def _answer_resumably(
    request: Request, deps: Deps, read: Read, head: Head, conversation: str
) -> None:
    """A client that leaves stops nothing: the answer goes on, and waits to be read."""
    owner = owner_of(request, deps)
    session = deps.streams.open(owner, conversation)
    session.start(_produce(request, deps, read, head, session))
    writer = _writer(request, deps, read)
    writer.start_pings()
    try:
        await session.begun()
        refusal = session.refusal
        if refusal is None and not session.total_bytes:
            refusal = Unavailable("the stream was cancelled before it began")
        if refusal is not None and not writer.is_open:
            deps.streams.forget(owner, session)
            raise refusal
        writer.set_headers(session.headers)
        async for data in session.read(0):
            await writer.write(data)
    finally:
        writer.stop_pings()
    await writer.end()


async def _produce(
    request: Request, deps: Deps, read: Read, head: Head, session: StreamSession
) -> None:
    encoder = read.encoder(head)
    try:
        with deps.inflight.enter() as ticket, ticket.cut_as_error():
            await _flow(SessionSink(session), encoder, request, deps, ticket, read, head)
    except Exception as error:
        if not session.total_bytes:
            # Kept for a while: without what its frames hold on to.
            session.refusal = error.with_traceback(None)
        info = error_info(request, error)
        await SessionSink(session).send(encoder.encode(Failed(info)))
    except asyncio.CancelledError:
        if session.total_bytes:
            # A reader takes no stream that merely ends for a whole one.
            info = Unavailable("the stream was cancelled: deleted, or its name taken").info()
            await SessionSink(session).send(encoder.encode(Failed(info)))
        raise
