"""Public faults, family E: what Anthropic's clients need of /v1/messages."""

import json
from typing import Any

import pytest

from tests.cases.asking import Chunk, opened, stream
from tests.cases.named_events import events
from tests.cases.routes import MESSAGES
from tests.cases.test_b_routes import const
from tests.cases.test_b_streams import FORCED_TEXTS, REPLACEMENT
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PATH = MESSAGES.path
COUNT = f"{PATH}/count_tokens"
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "sk-ant", "anthropic-beta": "a,b"}
HI = [{"role": "user", "content": "hi"}]


def forced(text: str) -> dict[str, Any]:
    """Fields that make a model call a tool with this text."""
    tool = {"name": "k", "input_schema": const(text)}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": "k"}}


def told(program: Program, **fields: Any) -> list[Chunk]:
    return events(stream(program, MESSAGES.body("hi", max_tokens=120, **fields), path=PATH))


@pytest.mark.parametrize("server", ["echo", "long_tiny"])
def test_e1_the_first_event_is_whole(echo: Program, long_tiny: Program, server: str) -> None:
    """E1: `message_start` lacked `content`; SDKs crashed.

    https://github.com/farion1231/cc-switch/issues/7390
    """
    program = {"echo": echo, "long_tiny": long_tiny}[server]
    body = {"model": "any", "max_tokens": 8, "stream": True, "messages": HI}
    with opened(program, body, path=PATH, headers=HEADERS) as response:
        frames = response.read().decode().split("\n\n")
    assert frames.pop() == ""
    found = []
    for frame in frames:
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    message = found[0]["message"]
    assert set(message) == MESSAGES.keys
    assert (message["type"], message["role"], message["content"]) == ("message", "assistant", [])
    assert message["stop_reason"] is message["stop_sequence"] is None
    assert message["usage"]["input_tokens"] > 0
    assert message["usage"]["output_tokens"] == 0
    *_, delta, stop = found
    assert (delta["type"], stop) == ("message_delta", {"type": "message_stop"})
    assert delta["usage"]["input_tokens"] == message["usage"]["input_tokens"]
    assert 1 <= delta["usage"]["output_tokens"] <= 8


def test_e1_blocks_are_numbered_and_never_overlap(long_tiny: Program) -> None:
    """E1: start, deltas and stop of a block have its index, be it text or a call."""
    for fields in ({}, forced("x")):
        blocks = [event for event in told(long_tiny, **fields) if "index" in event]
        kinds = [event["type"].removeprefix("content_block_") for event in blocks]
        number, is_open = -1, False
        for kind, event in zip(kinds, blocks, strict=True):
            assert (kind == "start") == (not is_open)
            number += kind == "start"
            is_open = kind != "stop"
            assert event["index"] == number
        assert not is_open
        assert number == 0


@pytest.mark.parametrize("text", FORCED_TEXTS)
def test_b2_characters_of_a_call_come_whole(long_tiny: Program, text: str) -> None:
    """B2 where no form can be asked for: the input of a call is exact, in both forms."""
    found = told(long_tiny, **forced(text))
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    assert {delta["type"] for delta in deltas} == {"input_json_delta"}
    joined = "".join(delta["partial_json"] for delta in deltas)
    assert json.loads(joined) == {"t": text}
    assert REPLACEMENT not in joined
    status, answer = long_tiny.post(PATH, MESSAGES.body("hi", max_tokens=120, **forced(text)))
    (block,) = answer["content"]
    assert (status, block["type"], block["input"]) == (200, "tool_use", {"t": text})


@pytest.mark.parametrize(
    ("stops", "shown", "matched"),
    [
        pytest.param(["-c"], "ab", "-c", id="the-case"),
        pytest.param(["zz", "d-e", "-c"], "ab", "-c", id="earliest-of-several"),
        pytest.param(["ef"], "ab-cd-", "ef", id="at-the-end"),
        pytest.param(["a"], "", "a", id="at-the-start"),
        pytest.param(["-x"], "ab-cd-ef", None, id="no-match"),
    ],
)
def test_b4_the_stop_that_matched_is_named(
    echo: Program, stops: list[str], shown: str, matched: str | None
) -> None:
    """B4: `stop_reason` and `stop_sequence`, in both forms, and no delta shows it."""
    body = MESSAGES.body("ab-cd-ef", stop_sequences=stops)
    end = ("end_turn" if matched is None else "stop_sequence", matched)
    answer = echo.post(PATH, body)[1]
    assert (answer["stop_reason"], answer["stop_sequence"]) == end
    assert answer["content"] == [{"type": "text", "text": shown}]
    streamed = stream(echo, body, path=PATH)
    seen = MESSAGES.joined(streamed)
    assert seen.text == shown
    assert all(shown.startswith("".join(seen.pieces[:n])) for n in range(len(seen.pieces)))
    delta = events(streamed)[-2]["delta"]
    assert (delta["stop_reason"], delta["stop_sequence"]) == end


def test_e3_the_count_route_takes_a_query_string(long_tiny: Program) -> None:
    """E3: 404 for the route Claude Code calls often.

    https://github.com/BerriAI/litellm/issues/13252
    """
    made = long_tiny.health()["observability"]["decode_tokens"]
    for path in (f"{COUNT}?beta=true", COUNT, "/messages/count_tokens?beta=true&x=%20"):
        status, answer = long_tiny.call("POST", path, {"model": "any", "messages": HI}, HEADERS)
        assert (status, set(answer)) == (200, {"input_tokens"})
        assert answer["input_tokens"] > 0
    assert long_tiny.health()["observability"]["decode_tokens"] == made
    status, whole = long_tiny.call("POST", f"{PATH}?beta=true", MESSAGES.body("hi", max_tokens=1))
    assert (status, MESSAGES.read(whole).counts[0]) == (200, answer["input_tokens"])


@pytest.mark.parametrize(
    ("turns", "same"),
    [
        pytest.param("u:a s:b u:c", "u:a u:b\n\nc", id="the-case"),
        pytest.param("u:a u:c", "u:a u:c", id="two-user-turns-in-a-row"),
        pytest.param("s:b u:a", "s:b u:a", id="at-the-beginning"),
        pytest.param("u:a s:b", "u:a\n\nb", id="at-the-end"),
        pytest.param("u:a a:b s:c u:d", "u:a a:b u:c\n\nd", id="behind-an-answer"),
        pytest.param("u:a s:b s:c u:d", "u:a u:b\n\nc\n\nd", id="two-of-them"),
    ],
)
def test_e5_system_among_the_messages(long_tiny: Program, turns: str, same: str) -> None:
    """E5: a Claude Code update sends role `system` in `messages`; 422.

    https://github.com/jundot/omlx/issues/1503
    """
    counts = []
    for told in (turns, same):
        body = {"model": "any", "max_tokens": 4, "messages": _turns(told)}
        status, answer = long_tiny.post(PATH, body)
        assert status == 200, answer
        counts.append(MESSAGES.read(answer).counts[0])
        assert long_tiny.post(COUNT, body) == (200, {"input_tokens": counts[-1]})
    assert counts[0] == counts[1]
    without = [turn for turn in _turns(turns) if turn["role"] != "system"]
    fewer = long_tiny.post(COUNT, {"model": "any", "messages": without})[1]["input_tokens"]
    assert (fewer < counts[0]) == ("s:" in turns)


def _turns(told: str) -> list[dict[str, str]]:
    roles = {"u": "user", "s": "system", "a": "assistant"}
    return [{"role": roles[turn[0]], "content": turn[2:]} for turn in told.split(" ")]


THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(THOUGHT, id="empty"),
        pytest.param(THOUGHT | {"signature": "EqQBCkYIBxgC"}, id="omitted-and-signed"),
        pytest.param({"type": "redacted_thinking", "data": "EroBCkYI"}, id="redacted"),
        pytest.param(
            {"type": "server_tool_use", "id": "s", "name": "web_search"}, id="server-tool"
        ),
    ],
)
def test_e5_blocks_that_cannot_be_read_cost_nothing(long_tiny: Program, block: Any) -> None:
    """E5's kind: what clients send back of other models' answers."""
    text = {"type": "text", "text": "b"}
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}
    counts = []
    for content in ([text, call], [block, text, call], [text, block, call], [text, call, block]):
        turns = [*HI, {"role": "assistant", "content": content}, result]
        status, answer = long_tiny.post(COUNT, {"model": "any", "messages": turns})
        assert status == 200, answer
        counts.append(answer["input_tokens"])
    assert counts == [counts[0]] * 4
