"""From the body of a Responses request to what its codec understood: the history it goes on from is
looked up in between, and what it says may be kept for those who go on from it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sanic import Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.owner import owner_of
from mlxcel.http.reading import LARGE_BODY_BYTES, done, lane_of, read_rules
from mlxcel.protocols.responses.asked import Asked
from mlxcel.protocols.responses.body import OnDone
from mlxcel.protocols.responses.create import ResponsesRead
from mlxcel.protocols.responses.kept import ResponsesOff, referenced
from mlxcel.storage.responses import BrokenChain, Item, ResponseStore, StoredResponse

MANY_ITEMS = 1000
"""Some 10 ms of work: more are read on a thread."""

Remembered = Callable[[str], Sequence[Item] | None]
"""All items up to the end of a response, thoughts among them; None: nothing is known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A body that has come, and is yet to be read."""

    parse: Callable[[], Mapping[str, Any]]
    """May raise what refuses it."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    read: Any
    """What the codec has made of it."""
    history: Sequence[Item]
    """What it goes on from."""


def forgetful(id: str) -> None:
    return None


async def read_response(
    request: Request,
    deps: Deps,
    codec: Any,
    sent: Sent,
    *,
    id: str,
    requires_model: bool | None = None,
    remembered: Remembered = forgetful,
    **more: Any,
) -> Found:
    """`codec` is one of the two of this dialect, and is told `more`. `id` will be that of the
    response. `remembered` has what the store has not."""
    generator: Generator = deps.ports["generate"]
    rules = read_rules(deps, generator, requires_model)
    received_s, is_large = time.monotonic(), sent.size > LARGE_BODY_BYTES

    def first() -> tuple[dict[str, Any], Asked]:
        body = dict(sent.parse())
        return body, codec.read_first(body, rules)

    body, asked = await done(first, is_large=is_large)
    owner = owner_of(request, deps)
    history = await _history(deps, owner, asked, remembered)
    named = await _named(deps, owner, referenced(body))
    reader = partial(
        codec.read,
        body,
        request_id=id,
        settings=deps.settings.current,
        received_s=received_s,
        rules=rules,
        lane=lane_of(request),
        history=history,
        find=named.get,
        **more,
    )
    read = await done(reader, is_large=is_large or len(history) > MANY_ITEMS)
    return Found(read=read, history=history)


async def _history(deps: Deps, owner: str, asked: Asked, remembered: Remembered) -> Sequence[Item]:
    if asked.previous_id is not None:
        try:
            store = store_of(deps, param="previous_response_id")
            chain = await store.chain(owner, asked.previous_id)
        except (BrokenChain, ResponsesOff):
            known = remembered(asked.previous_id)
            if known is None:
                raise
            return known
        return [item for response in chain for item in response.items]
    if asked.conversation is None:
        return []
    if not deps.transcripts.is_on:
        key = "limits.conversation_store"
        raise ResponsesOff("conversations", key, param="conversation")
    return deps.transcripts.items(owner, asked.conversation)


async def _named(deps: Deps, owner: str, ids: Sequence[str]) -> dict[str, Item]:
    if not ids or not deps.responses.is_on:
        return {}
    return await deps.responses.find_items(owner, ids)


def store_of(deps: Deps, *, param: str | None = None) -> ResponseStore:
    """Raises ResponsesOff, about `param`."""
    if not deps.responses.is_on:
        raise ResponsesOff("responses", "limits.responses_store", param=param)
    return deps.responses


def keeper(deps: Deps, owner: str, read: ResponsesRead) -> OnDone | None:
    """Keeps it before the client knows that it is done; None: it is not to be kept."""
    return partial(_keep, deps, owner, read) if read.store else None


def _keep(deps: Deps, owner: str, read: ResponsesRead, body: dict[str, Any]) -> None:
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
