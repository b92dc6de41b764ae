"""Wire formats byte for byte: a request and the events of its generation, in; bytes, out.

`request.json` + `events.jsonl` -> `response.json` or `stream.sse`. A changed golden is a changed
wire format: say so in the change.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import msgspec
import orjson
import pytest

from mlxcel.core.events import Event
from mlxcel.generation.collect import collect
from mlxcel.http.sse import frame_bytes
from mlxcel.protocols.base import Head, Read
from mlxcel.protocols.openai import chat, completions
from tests.protocols.samples import RULES, SETTINGS

ROOT = Path(__file__).parents[2] / "golden" / "openai"
CASES = sorted(path for path in ROOT.iterdir() if path.is_dir())
EVENTS = {kind.__name__: kind for kind in get_args(Event)}
HEAD = Head(id="chatcmpl-0", created=1790000000, model="tiny")


def read_events(case: Path) -> list[Event]:
    rows = [json.loads(line) for line in (case / "events.jsonl").read_text().splitlines()]
    return [msgspec.convert(row, EVENTS[row.pop("type")]) for row in rows]


def wire(read: Read, events: list[Event], head: Head = HEAD) -> bytes:
    if read.stream:
        encoder = read.encoder(head)
        return b"".join(frame_bytes(frame) for event in events for frame in encoder.encode(event))
    return orjson.dumps(read.answer(head, asyncio.run(collect(replayed(events)))))


async def replayed(events: list[Event]) -> AsyncIterator[Event]:
    for event in events:
        yield event


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_wire_is_as_recorded(case: Path) -> None:
    codec = completions if case.name.startswith("completion") else chat
    read = codec.read(
        json.loads((case / "request.json").read_text()),
        request_id=HEAD.id,
        settings=SETTINGS,
        received_s=0.0,
        rules=RULES,
    )
    recorded = case / ("stream.sse" if read.stream else "response.json")
    assert wire(read, read_events(case)) == recorded.read_bytes()


def test_every_case_is_found() -> None:
    assert len(CASES) >= 32
