"""/v1/responses: answers that are kept, and what can be done with them afterwards."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.body import json_object
from mlxcel.http.deps import Deps
from mlxcel.http.generate import respond
from mlxcel.http.owner import owner_of
from mlxcel.http.reading import LARGE_BODY_BYTES, done, lane_of, read_rules
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.base import Read
from mlxcel.protocols.responses import compact as compaction
from mlxcel.protocols.responses import create as creation
from mlxcel.protocols.responses.asked import Asked
from mlxcel.protocols.responses.create import ResponsesRead
from mlxcel.protocols.responses.errors import CANCELLED
from mlxcel.protocols.responses.kept import (
    Cancelled,
    ResponseNotFound,
    ResponsesOff,
    count_body,
    deleted_body,
    items_body,
    read_page,
    referenced,
    stopped_body,
)
from mlxcel.storage.responses import Item, ResponseStore, StoredResponse

MANY_ITEMS = 1000
"""Some 10 ms of work: more are read on a thread."""


async def create(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    async def reading() -> Read:
        read = await _read(request, deps, creation)
        if not read.store:
            return read
        return replace(read, on_done=partial(_keep, deps, owner_of(request, deps), read))

    return await respond(request, deps, reading)


async def compact(request: Request, deps: Deps, row: Row) -> HTTPResponse | None:
    return await respond(request, deps, partial(_read, request, deps, compaction))


async def count(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """No slot and no worker is needed, and nothing is kept."""
    generator: Generator = deps.ports["generate"]
    read = await _read(request, deps, creation, requires_model=False)
    return json_reply(count_body(await generator.count(read.request)))


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    return json_reply((await _kept(request, deps)).body)


async def delete(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    id = _id(request)
    was_there = await _store(deps).delete(owner_of(request, deps), id)
    return json_reply(deleted_body(id, was_there=was_there))


async def items(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    page = read_page(*(request.args.get(name) for name in ("limit", "order", "after")))
    return json_reply(items_body((await _kept(request, deps)).input_items, page))


async def cancel(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """One that has ended is only marked."""
    id, owner, store = _id(request), owner_of(request, deps), _store(deps)
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


async def _read(
    request: Request, deps: Deps, codec: Any, *, requires_model: bool | None = None
) -> Any:
    """What `codec`, one of the two of this dialect, understands of the body and its history."""
    generator: Generator = deps.ports["generate"]
    request_id = request.ctx.request_id = creation.new_id()
    rules = read_rules(deps, generator, requires_model)
    received_s, is_large = time.monotonic(), len(request.body) > LARGE_BODY_BYTES

    def first() -> tuple[dict[str, Any], Asked]:
        body = dict(json_object(request))
        return body, codec.read_first(body, rules)

    body, asked = await done(first, is_large=is_large)
    history = await _history(request, deps, asked)
    named = await _named(request, deps, referenced(body))
    reader = partial(
        codec.read,
        body,
        request_id=request_id,
        settings=deps.settings.current,
        received_s=received_s,
        rules=rules,
        lane=lane_of(request),
        history=history,
        find=named.get,
    )
    return await done(reader, is_large=is_large or len(history) > MANY_ITEMS)


async def _history(request: Request, deps: Deps, asked: Asked) -> list[Item]:
    owner = owner_of(request, deps)
    if asked.previous_id is not None:
        store = _store(deps, param="previous_response_id")
        chain = await store.chain(owner, asked.previous_id)
        return [item for response in chain for item in response.items]
    if asked.conversation is None:
        return []
    if not deps.transcripts.is_on:
        key = "limits.conversation_store"
        raise ResponsesOff("conversations", key, param="conversation")
    return deps.transcripts.items(owner, asked.conversation)


async def _named(request: Request, deps: Deps, ids: Sequence[str]) -> dict[str, Item]:
    if not ids or not deps.responses.is_on:
        return {}
    return await deps.responses.find_items(owner_of(request, deps), ids)


def _keep(deps: Deps, owner: str, read: ResponsesRead, body: dict[str, Any]) -> None:
    """Before the client knows that it is done."""
    response = StoredResponse(
        id=body["id"],
        owner=owner,
        previous_id=read.previous_id,
        body=body,
        input_items=read.input_items,
    )
    deps.responses.put(response)
    if read.conversation is not None:
        deps.transcripts.append(owner, read.conversation, response.items)


def _store(deps: Deps, *, param: str | None = None) -> ResponseStore:
    if not deps.responses.is_on:
        raise ResponsesOff("responses", "limits.responses_store", param=param)
    return deps.responses


async def _kept(request: Request, deps: Deps) -> StoredResponse:
    id = _id(request)
    stored = await _store(deps).get(owner_of(request, deps), id)
    if stored is None:
        raise ResponseNotFound(id)
    return stored


def _id(request: Request) -> str:
    id: str = request.match_info["response"]
    return id
