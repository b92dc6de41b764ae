"""/v1/responses: answers that are kept, and what can be done with them afterwards."""

from dataclasses import replace
from typing import Any

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.body import json_object
from mlxcel.http.deps import Deps
from mlxcel.http.generate import respond
from mlxcel.http.owner import owner_of
from mlxcel.http.replies import json_reply
from mlxcel.http.responses_read import Found, Sent, keeper, read_response, store_of
from mlxcel.http.routes import Row
from mlxcel.protocols.base import Read
from mlxcel.protocols.responses import compact as compaction
from mlxcel.protocols.responses import create as creation
from mlxcel.protocols.responses.errors import CANCELLED
from mlxcel.protocols.responses.kept import (
    Cancelled,
    ResponseNotFound,
    count_body,
    deleted_body,
    items_body,
    read_page,
    refuse_replay,
    stopped_body,
)
from mlxcel.storage.responses import StoredResponse


async def create(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    async def reading() -> Read:
        found = await _read(request, deps, creation)
        return replace(found.read, on_done=keeper(deps, owner_of(request, deps), found.read))

    return await respond(request, deps, reading)


async def compact(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    async def reading() -> Read:
        found = await _read(request, deps, compaction)
        read: Read = found.read
        return read

    return await respond(request, deps, reading)


async def count(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """No slot and no worker is needed, and nothing is kept."""
    generator: Generator = deps.ports["generate"]
    found = await _read(request, deps, creation, requires_model=False)
    return json_reply(count_body(await generator.count(found.read.request)))


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    refuse_replay(request.args.get("stream"))
    return json_reply((await _kept(request, deps)).body)


async def delete(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    id = _id(request)
    was_there = await store_of(deps).delete(owner_of(request, deps), id)
    return json_reply(deleted_body(id, was_there=was_there))


async def items(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    page = read_page(*(request.args.get(name) for name in ("limit", "order", "after")))
    return json_reply(items_body((await _kept(request, deps)).input_items, page))


async def cancel(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """One that has ended is only marked."""
    id, owner, store = _id(request), owner_of(request, deps), store_of(deps)
    stored = await store.get(owner, id)
    answer = deps.live.find(id, owner) if id.startswith(creation.ID_PREFIX) else None
    if stored is None and answer is not None:
        answer.cut(Cancelled())
        return json_reply(stopped_body(id))
    if stored is None:
        # It may have ended between the two looks.
        stored = await _kept(request, deps)
    marked = replace(stored, body={**stored.body, "status": CANCELLED})
    store.put(marked)
    return json_reply(marked.body)


async def _read(request: Request, deps: Deps, codec: Any, **how: Any) -> Found:
    request.ctx.request_id = id = creation.new_id()
    sent = Sent(parse=lambda: json_object(request), size=len(request.body))
    return await read_response(request, deps, codec, sent, id=id, **how)


async def _kept(request: Request, deps: Deps) -> StoredResponse:
    id = _id(request)
    stored = await store_of(deps).get(owner_of(request, deps), id)
    if stored is None:
        raise ResponseNotFound(id)
    return stored


def _id(request: Request) -> str:
    id: str = request.match_info["response"]
    return id
