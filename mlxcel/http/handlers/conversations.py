"""/v1/conv_kv: conversations are saved to files, loaded, listed, deleted."""

from collections.abc import Awaitable
from dataclasses import asdict
from typing import TypeVar

from sanic import HTTPResponse, Request

from mlxcel.core.conversations import Conversations
from mlxcel.core.errors import BadRequest, MlxcelError, NotImplementedHere
from mlxcel.core.ports import Generator
from mlxcel.http.body import json_object
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.kamiwaza.asked import clean_id
from mlxcel.protocols.kamiwaza.saved import (
    deleted_body,
    list_body,
    loaded_body,
    read_required_id,
    read_save,
    saved_body,
)

T = TypeVar("T")


async def save(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    kept = _conversations(deps)
    asked = read_save(json_object(request))
    saved = await kept.save(
        asked.id,
        title=asked.title,
        budget_bytes=asked.budget_bytes,
        is_unlimited=asked.is_unlimited,
    )
    return json_reply(saved_body(asdict(saved)))


async def load(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    kept = _conversations(deps)
    loaded = await kept.load(read_required_id(json_object(request)))
    return json_reply(loaded_body(asdict(loaded)))


async def stats(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    items = await _told(_conversations(deps).items())
    return json_reply(list_body(asdict(item) for item in items))


async def delete(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    kept = _conversations(deps)
    conversation = clean_id(request.match_info["conversation"])
    if conversation is None:
        raise BadRequest("no conversation id in the path")
    was_there = await _told(kept.delete(conversation))
    return json_reply(deleted_body(conversation, was_there=was_there))


def _conversations(deps: Deps) -> Conversations:
    generator: Generator = deps.ports["generate"]
    if generator.conversations is None:
        raise NotImplementedHere(
            "conversations are off: start the server with cache=conversations, or with "
            "cache.conversations.enabled=true"
        )
    return generator.conversations


async def _told(work: Awaitable[T]) -> T:
    """A folder that cannot be read is no secret of ours: its owner is the one who asks."""
    try:
        return await work
    except OSError as error:
        raise MlxcelError(f"the saved conversations cannot be read: {error}") from error
