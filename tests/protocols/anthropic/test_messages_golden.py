"""Messages byte for byte, as in tests/protocols/openai/test_golden.py.

`request.json` + `events.jsonl` -> `response.json` or `stream.sse`. A changed golden is a changed
wire format: say so in the change.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mlxcel.protocols.anthropic import messages
from mlxcel.protocols.base import Head
from tests.protocols.openai.test_golden import read_events, wire
from tests.protocols.samples import RULES, SETTINGS

ROOT = Path(__file__).parents[2] / "golden" / "anthropic"
HEAD = Head(id="msg_0", created=0, model="tiny")
CASES = sorted(path for path in ROOT.iterdir() if path.is_dir())
STREAMS = [case for case in CASES if (case / "stream.sse").exists()]


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_wire_is_as_recorded(case: Path) -> None:
    read = messages.read(
        json.loads((case / "request.json").read_text()),
        request_id="msg_0",
        settings=SETTINGS,
        received_s=0.0,
        rules=RULES,
    )
    recorded = case / ("stream.sse" if read.stream else "response.json")
    assert wire(read, read_events(case), HEAD) == recorded.read_bytes()


def test_every_case_is_found() -> None:
    assert len(CASES) >= 34


def events(case: Path) -> list[dict[str, Any]]:
    """Each has a name, and says it itself."""
    found = []
    for frame in (case / "stream.sse").read_text().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def put_together(found: list[dict[str, Any]]) -> dict[str, Any]:
    """As a client does; blocks come one after the other, each from start to stop."""
    whole: dict[str, Any] = found[0]["message"]
    is_open = False
    for event in found[1:]:
        match event["type"]:
            case "content_block_start":
                assert (event["index"], is_open) == (len(whole["content"]), False)
                whole["content"].append(event["content_block"] | {"json": ""})
                is_open = True
            case "content_block_delta":
                assert (event["index"], is_open) == (len(whole["content"]) - 1, True)
                block, delta = whole["content"][-1], dict(event["delta"])
                assert delta.pop("type").removesuffix("_delta") in KINDS[block["type"]]
                for name, text in delta.items():
                    block["json" if name == "partial_json" else name] += text
            case "content_block_stop":
                assert (event["index"], is_open) == (len(whole["content"]) - 1, True)
                is_open = False
            case "message_delta":
                whole |= event["delta"] | {"usage": event["usage"]}
    assert not is_open
    return whole | {"content": [_closed(block) for block in whole["content"]]}


KINDS = {
    "text": ["text"],
    "thinking": ["thinking", "signature"],
    "tool_use": ["input_json"],
}
"""Deltas of each block."""


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    sent = block.pop("json")
    return block | ({"input": json.loads(sent)} if block["type"] == "tool_use" else {})


WHOLE = [case for case in STREAMS if (ROOT / case.name.replace("stream_", "")).exists()]


@pytest.mark.parametrize("case", WHOLE, ids=lambda path: path.name)
def test_a_stream_comes_to_the_answer_in_one_piece(case: Path) -> None:
    whole = json.loads((ROOT / case.name.replace("stream_", "") / "response.json").read_text())
    if whole["content"] == [{"type": "text", "text": ""}]:
        whole["content"] = []  # nothing was said: there is no block in the stream
    assert put_together(events(case)) == whole


@pytest.mark.parametrize("case", STREAMS, ids=lambda path: path.name)
def test_a_stream_begins_and_ends_once(case: Path) -> None:
    kinds = [event["type"] for event in events(case)]
    assert kinds[:2] == ["message_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"] or kinds[-1] == "error"
    counts = Counter(kinds)
    once = ("message_start", "ping", "message_delta", "message_stop", "error")
    assert all(counts[kind] <= 1 for kind in once)
    assert not (counts["error"] and counts["message_delta"] + counts["message_stop"])
