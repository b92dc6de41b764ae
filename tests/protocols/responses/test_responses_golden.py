"""The wire of /v1/responses byte for byte: a request and the events of its generation, in; bytes,
out. A changed golden is a changed wire format: say so in the change."""

import json
from pathlib import Path
from typing import get_args

import msgspec
import orjson
import pytest

from mlxcel.core.events import Event
from mlxcel.http.sse import frame_bytes
from mlxcel.protocols.responses import create
from tests.protocols.responses.reading import HEAD, read_body, whole

ROOT = Path(__file__).parents[2] / "golden" / "responses"
CASES = sorted(path for path in ROOT.iterdir() if path.is_dir())
EVENTS = {kind.__name__: kind for kind in get_args(Event)}


def read_events(case: Path) -> list[Event]:
    rows = [json.loads(line) for line in (case / "events.jsonl").read_text().splitlines()]
    return [msgspec.convert(row, EVENTS[row.pop("type")]) for row in rows]


def wire(read: create.ResponsesRead, events: list[Event]) -> bytes:
    if read.stream:
        encoder = read.encoder(HEAD)
        return b"".join(frame_bytes(frame) for event in events for frame in encoder.encode(event))
    return orjson.dumps(whole(read, events))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_wire_is_as_recorded(case: Path) -> None:
    read = read_body(json.loads((case / "request.json").read_text()))
    recorded = case / ("stream.sse" if read.stream else "response.json")
    assert wire(read, read_events(case)) == recorded.read_bytes()


def test_every_case_is_found() -> None:
    assert len(CASES) >= 18
