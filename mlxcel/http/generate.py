"""The one handler of all generation routes: read, generate, answer as JSON or as a stream."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from sanic import HTTPResponse, Request

from mlxcel.core.answer import Answer
from mlxcel.core.cache import CacheReport
from mlxcel.core.errors import GenerationFailed, RemoteError
from mlxcel.core.events import Accepted, Event, Failed
from mlxcel.core.ports import Generator
from mlxcel.core.request import Lane
from mlxcel.generation.collect import collect
from mlxcel.http.body import json_object
from mlxcel.http.conversation_id import conversation_named, conversation_of_address
from mlxcel.http.deps import Deps
from mlxcel.http.errors import error_info
from mlxcel.http.inflight import Ticket
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.http.sse import SseWriter
from mlxcel.protocols import cache_words
from mlxcel.protocols.base import Head, Read, ReadRules, SseFrame, StreamEncoder
from mlxcel.protocols.kamiwaza.chat import ConversationRead, with_conversation
from mlxcel.protocols.kamiwaza.headers import conversation_headers, early_conversation_headers

T = TypeVar("T")

log = logging.getLogger(__name__)
PRIORITY = "X-Priority"
LARGE_BODY_BYTES = 256 * 1024
LARGE_ANSWER_ENTRIES = 2048
"""Some 10 ms of work each: what is larger is read or written on a thread."""
_threads = ThreadPoolExecutor(2, thread_name_prefix="bodies")
LAST_WORD_S = 2.0
"""How long a reader that has stopped reading may hold up the end of its stream."""


async def generate(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    _keep_reading(request)
    with deps.inflight.enter() as ticket, ticket.cut_as_error():
        generator: Generator = deps.ports["generate"]
        reader = _reader(request, deps, row, generator)
        read = await _done(reader, is_large=len(request.body) > LARGE_BODY_BYTES)
        head = Head(id=read.request.id, created=int(time.time()), model=generator.model.id)
        # Closing the iterator frees the slot: at the end, on a failure, when the client left.
        async with aclosing(generator.generate(read.request)) as events:
            if not read.stream:
                answer = await collect(events)
                is_large = _entries(answer) > LARGE_ANSWER_ENTRIES
                return await _done(partial(_reply, read, head, answer), is_large=is_large)
            await _pump(request, ticket, _writer(request, deps, read), read, head, events)
    return None


def answer_headers(read: Read, *, prompt_tokens: int, report: CacheReport | None) -> dict[str, str]:
    """Those of our own on an answer: on one in a piece by what was used of the prompt cache in
    the end, on a stream by what was there when the request came."""
    headers = {cache_words.HEADER: cache_words.cache_header(report)}
    if isinstance(read, ConversationRead):
        headers |= conversation_headers(read.request.cache, prompt_tokens, report)
    return headers


def early_headers(read: Read) -> dict[str, str]:
    """The same where they have to leave before anything is known: a stream that begins with a
    keep-alive comment."""
    headers = {cache_words.HEADER: cache_words.PENDING}
    if isinstance(read, ConversationRead):
        headers |= early_conversation_headers(read.request.cache)
    return headers


def _reply(read: Read, head: Head, answer: Answer) -> HTTPResponse:
    headers = answer_headers(
        read, prompt_tokens=answer.usage.prompt_tokens, report=answer.timings.cache
    )
    return json_reply(read.answer(head, answer), headers=headers)


def _writer(request: Request, deps: Deps, read: Read) -> SseWriter:
    return SseWriter(request, deps.options.ping_interval_s, early_headers(read))


def _keep_reading(request: Request) -> None:
    """Sanic pauses reading when a body fills its buffer and, the body being complete, never
    resumes: a client that leaves would go unnoticed until the next write."""
    request.transport.resume_reading()


def _reader(request: Request, deps: Deps, row: Row, generator: Generator) -> Callable[[], Read]:
    """What reads the body; all else about the request is looked at now."""
    assert row.codec is not None, "checked when the rows were read"
    request_id = f"{row.codec.ID_PREFIX}{uuid.uuid4()}"
    request.ctx.request_id = request_id
    read = partial(
        row.codec.read,
        request_id=request_id,
        settings=deps.settings.current,
        received_s=time.monotonic(),
        rules=ReadRules(
            require_model=deps.options.routes["require_model"],
            served=generator.model.names,
            refuse_unknown=deps.options.routes["unknown_model"] == "refuse",
            fixed=deps.options.fixed,
            reasoning_alias=deps.options.reasoning_alias,
        ),
        lane=_lane(request),
    )
    if generator.conversations is None:
        return lambda: read(json_object(request))
    named = conversation_named(request)
    address = conversation_of_address(request, generator.conversations.ids)

    def read_turn() -> Read:
        body = json_object(request)
        return with_conversation(read(body), body, named=named, address=address)

    return read_turn


async def _done(work: Callable[[], T], *, is_large: bool) -> T:
    """The result of what may take seconds: then a thread does it, and others are served."""
    if not is_large:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)


def _entries(answer: Answer) -> int:
    """Of log-probabilities: they make an answer a hundred times as large as its text."""
    return sum(1 + len(token.top) for choice in answer.choices for token in choice.logprobs)


def _lane(request: Request) -> Lane:
    """Unknown words count as none: whoever misspells a wish is served all the same."""
    asked: str = request.headers.get(PRIORITY, "")
    return Lane.__members__.get(asked.strip().upper(), Lane.NORMAL)


async def _pump(
    request: Request,
    ticket: Ticket,
    writer: SseWriter,
    read: Read,
    head: Head,
    events: AsyncGenerator[Event, None],
) -> None:
    """Until headers are out an error is an answer with its own status. From then on it is told
    inside the stream (Sanic would drop the answer of an error handler and truncate the body).

    A worker in a long step cannot say that it took the request: after a ping interval without
    a first event the headers leave all the same, for the sake of proxies.
    """
    encoder = read.encoder(head)
    writer.start_pings()
    try:
        with ticket.cut_as_error():
            await _send_all(writer, encoder, read, events)
    except Exception as error:
        if not writer.is_open:
            raise
        await _last_words(request, writer, encoder.encode(Failed(error_info(request, error))))
    finally:
        writer.stop_pings()
    await writer.end()


async def _send_all(
    writer: SseWriter,
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
            writer.set_headers(headers)
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
