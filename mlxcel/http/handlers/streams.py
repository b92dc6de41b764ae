"""Streams that are kept: read from any place on, looked up, ended."""

from sanic import HTTPResponse, Request

from mlxcel.http.body import short_json
from mlxcel.http.deps import Deps
from mlxcel.http.owner import owner_of
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.http.sse import SseWriter
from mlxcel.protocols.llama.streams import (
    StreamNotFound,
    read_conversation,
    read_names,
    read_offset,
    stream_body,
)


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    conversation = read_conversation(request.args.get("conv_id"))
    offset = read_offset(request.args.get("from"))
    session = deps.streams.find(owner_of(request, deps), conversation)
    if session is None:
        raise StreamNotFound
    session.check(offset)
    if request.method == "HEAD":
        return HTTPResponse(content_type="text/event-stream")
    writer = SseWriter(request, deps.options.ping_interval_s, {})
    writer.start_pings()
    try:
        async for data in session.read(offset):
            await writer.write(data)
    finally:
        writer.stop_pings()
    await writer.end()
    return None


async def delete(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    conversation = read_conversation(request.args.get("conv_id"))
    deps.streams.drop(owner_of(request, deps), conversation)
    return HTTPResponse(status=204)


async def lookup(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    found = deps.streams.named(owner_of(request, deps), read_names(short_json(request)))
    return json_reply(
        [
            stream_body(
                session.conversation,
                is_done=session.is_done,
                total_bytes=session.total_bytes,
                started_at=session.started_at,
                completed_at=session.completed_at,
            )
            for session in found
        ]
    )
