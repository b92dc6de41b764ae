"""Reading a Responses body in a test, and playing the events of its answer, with ids that count."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from mlxcel.core.events import Event
from mlxcel.core.settings import Settings
from mlxcel.generation.collect import collect
from mlxcel.protocols.base import Head, ReadRules
from mlxcel.protocols.responses import create
from tests.protocols.samples import RULES, SETTINGS

HEAD = Head(id="resp_" + "0" * 32, created=1790000000, model="tiny")
DRAWN = 123456
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def counting() -> Callable[[int], str]:
    """Ids that a golden can hold."""
    numbers = count(1)
    return lambda size: f"{next(numbers):0{2 * size}x}"


def read_body(
    body: dict[str, Any],
    settings: Settings = SETTINGS,
    rules: ReadRules = RULES,
    **how: Any,
) -> create.ResponsesRead:
    return create.read(
        body,
        request_id=HEAD.id,
        settings=settings,
        received_s=5.0,
        rules=rules,
        draw=lambda: DRAWN,
        new_hex=counting(),
        clock=lambda: 1790000002.75,
        **how,
    )


def responses_read(rules: ReadRules = RULES, **fields: Any) -> create.ResponsesRead:
    return read_body({"model": "tiny", "input": "hi"} | fields, rules=rules)


def items_read(
    items: Sequence[Any], *, history: Sequence[Any] = (), **fields: Any
) -> create.ResponsesRead:
    return read_body({"model": "tiny", "input": items} | fields, history=history)


def frames(read: create.ResponsesRead, events: Iterable[Event]) -> list[dict[str, Any]]:
    """The data of each, which names its event."""
    encoder = read.encoder(HEAD)
    found = []
    for event in events:
        for frame in encoder.encode(event):
            assert isinstance(frame.data, dict)
            assert frame.event == frame.data["type"]
            found.append(frame.data)
    return found


def whole(read: create.ResponsesRead, events: Sequence[Event]) -> dict[str, Any]:
    async def replayed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return read.answer(HEAD, asyncio.run(collect(replayed())))


def told(read: create.ResponsesRead) -> tuple[create.ResponsesRead, list[dict[str, Any]]]:
    """The same, and where the final object will be."""
    kept: list[dict[str, Any]] = []
    return replace(read, on_done=kept.append), kept
