"""From a request of a generation route to what its codec has understood."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from sanic import Request

from mlxcel.core.ports import Adapters, Generator
from mlxcel.core.request import Lane
from mlxcel.http.body import json_object
from mlxcel.http.conversation_id import conversation_named, conversation_of_address
from mlxcel.http.deps import Deps
from mlxcel.http.routes import Row
from mlxcel.protocols.base import Codec, Read, ReadRules
from mlxcel.protocols.kamiwaza.chat import with_conversation

T = TypeVar("T")

PRIORITY = "X-Priority"
LARGE_BODY_BYTES = 256 * 1024
"""Some 10 ms of work: what is larger is read on a thread."""
_threads = ThreadPoolExecutor(2, thread_name_prefix="bodies")


async def read_request(
    request: Request, deps: Deps, row: Row, *, requires_model: bool | None = None
) -> Read:
    """`requires_model` None: as the server's own rule says. Raises what refuses the body."""
    reader = _reader(request, deps, row, requires_model)
    return await done(reader, is_large=len(request.body) > LARGE_BODY_BYTES)


async def done(
    work: Callable[[], T], *, is_large: bool, threads: ThreadPoolExecutor = _threads
) -> T:
    """The result of what may take seconds: then a thread does it, and others are served."""
    if not is_large:
        return work()
    return await asyncio.get_running_loop().run_in_executor(threads, work)


def _reader(
    request: Request, deps: Deps, row: Row, requires_model: bool | None
) -> Callable[[], Read]:
    """What reads the body; all else about the request is looked at now."""
    assert row.codec is not None, "checked when the rows were read"
    generator: Generator = deps.ports["generate"]
    request_id = _new_id(row.codec)
    request.ctx.request_id = request_id
    read = partial(
        row.codec.read,
        request_id=request_id,
        settings=deps.settings.current,
        received_s=time.monotonic(),
        rules=read_rules(deps, generator, requires_model),
        lane=lane_of(request),
    )
    if generator.conversations is None:
        return lambda: read(json_object(request))
    named = conversation_named(request)
    address = conversation_of_address(request, generator.conversations.ids)

    def read_turn() -> Read:
        body = json_object(request)
        return with_conversation(read(body), body, named=named, address=address)

    return read_turn


def read_rules(deps: Deps, generator: Generator, requires_model: bool | None = None) -> ReadRules:
    """`requires_model` None: as the server's own rule says."""
    model = generator.model
    own_rule: bool = deps.options.routes["require_model"]
    return ReadRules(
        require_model=own_rule if requires_model is None else requires_model,
        served=model.names,
        refuse_unknown=deps.options.routes["unknown_model"] == "refuse",
        fixed=deps.options.fixed,
        lacks_fim=model.lacks_fim,
        fim_words=model.fim_words,
        merged_lora=_merged_lora(generator.adapters),
        window=generator.window,
        reasoning_alias=deps.options.reasoning_alias,
        strict_tools=deps.options.routes["strict_tools"],
        pins_stamp=deps.options.routes["anthropic"]["pin_billing_stamp"],
    )


def _new_id(codec: Codec) -> str:
    """In the codec's own form, if it has one."""
    new_id: Callable[[], str] | None = getattr(codec, "new_id", None)
    return f"{codec.ID_PREFIX}{uuid.uuid4()}" if new_id is None else new_id()


def _merged_lora(adapters: Adapters) -> Mapping[int, float] | None:
    return {one.id: one.scale for one in adapters.items()} if adapters.is_fused else None


def lane_of(request: Request) -> Lane:
    """Unknown words count as none: whoever misspells a wish is served all the same."""
    asked: str = request.headers.get(PRIORITY, "")
    return Lane.__members__.get(asked.strip().upper(), Lane.NORMAL)
