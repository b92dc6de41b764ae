"""POST /v1/messages and its count over HTTP (http-anthropic, 1, 2 and 10)."""

import json
import logging
from typing import Any

import httpx
import pytest

from mlxcel.core.errors import GenerationFailed, QueueFull
from mlxcel.core.events import Accepted, Failed, ReasoningDelta, TextDelta
from mlxcel.http import headers
from tests.http.site import BODY, ENDING, HELLO, Site, Start

pytestmark = pytest.mark.asyncio

PATHS = ["/v1/messages", "/messages"]
COUNTS = [
    "/v1/messages/count_tokens",
    "/messages/count_tokens",
    "/v1/messages/count_tokens?beta=true",
]
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FETCH = {"type": "web fetch\r\nX-Evil: 1", "name": "web_fetch"}
HEADER = headers.IGNORED_TOOLS


def kind_of(reply: httpx.Response) -> str:
    """Of an error in Anthropic's envelope."""
    body: dict[str, Any] = reply.json()
    assert (set(body), body["type"]) == ({"type", "error"}, "error")
    assert set(body["error"]) == {"type", "message"}
    found: str = body["error"]["type"]
    return found


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer(site: Site, path: str) -> None:
    reply = await site.http.post(path, json=BODY)
    answer = reply.json()
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert len(answer.pop("id")) == len("msg_") + 16
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 2,
        },
    }


async def test_the_first_event_is_whole(site: Site) -> None:
    """Public faults, E1: clients read every key of it."""
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "any"}
    reply = await site.http.post(PATHS[0], json=BODY | {"stream": True}, headers=headers)
    frames = [frame.split("\n") for frame in reply.text.split("\n\n")[:-1]]
    events = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    assert [name for name, _ in frames] == [f"event: {event['type']}" for event in events]
    message = events[0]["message"]
    assert set(message) == {
        *("id", "type", "role", "model", "content"),
        *("stop_reason", "stop_sequence", "usage"),
    }
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == (
        [],
        None,
        None,
    )
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (3, 0)
    assert [event["type"] for event in events[1:3]] == ["ping", "content_block_start"]
    assert events[-2]["usage"]["output_tokens"] == 2
    assert "[DONE]" not in reply.text


@pytest.mark.parametrize("path", COUNTS)
async def test_a_count_needs_no_limit_and_generates_nothing(site: Site, path: str) -> None:
    """Public faults, E3."""
    reply = await site.http.post(path, json=BODY)
    assert (reply.status_code, reply.json()) == (200, {"input_tokens": 3})
    assert site.generator.requests == []


async def test_a_system_turn_is_part_of_the_prompt(site: Site) -> None:
    """Public faults, E5."""
    said = [("user", "a"), ("system", "b"), ("user", "c")]
    turns = [{"role": role, "content": content} for role, content in said]
    reply = await site.http.post(PATHS[0], json=BODY | {"max_tokens": 4, "messages": turns})
    assert reply.status_code == 200
    sent = [(message.role, message.text) for message in site.generator.requests[0].chat.messages]
    assert sent == [("user", "a"), ("user", "b\n\nc")]


@pytest.mark.parametrize("path", [PATHS[0], COUNTS[0]])
@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        pytest.param(b"", "application/json", 400, id="empty"),
        pytest.param(b"{", "application/json", 400, id="no-json"),
        pytest.param(b"[]", "application/json", 400, id="no-object"),
        pytest.param(b'{"model": "tiny"}', "application/json", 400, id="no-messages"),
        pytest.param(json.dumps(BODY).encode(), "text/plain", 415, id="type"),
    ],
)
async def test_a_body_that_is_none(
    site: Site, path: str, content: bytes, kind: str, status: int
) -> None:
    reply = await site.http.post(path, content=content, headers={"Content-Type": kind})
    assert (reply.status_code, kind_of(reply)) == (status, "invalid_request_error")


@pytest.mark.parametrize("path", [PATHS[0], COUNTS[0]])
async def test_an_image_is_refused_where_it_stands(site: Site, path: str) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/a.png"}}
    turns = [{"role": "user", "content": [image]}]
    reply = await site.http.post(path, json=BODY | {"messages": turns})
    assert (reply.status_code, kind_of(reply)) == (501, "not_supported_error")
    assert "messages[0].content[0]" in reply.json()["error"]["message"]


async def test_without_a_model_there_is_nobody_to_ask(start: Start) -> None:
    site = await start(generate=None)
    for path in (*PATHS, *COUNTS):
        reply = await site.http.post(path, json=BODY)
        assert (reply.status_code, kind_of(reply)) == (501, "not_implemented")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(QueueFull(), 503, "overloaded_error"), (GenerationFailed("x"), 500, "api_error")],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_answer(
    site: Site, error: Exception, status: int, kind: str, stream: bool
) -> None:
    site.generator.script = [error]
    reply = await site.http.post(PATHS[0], json=BODY | {"stream": stream})
    assert (reply.status_code, kind_of(reply)) == (status, kind)


@pytest.mark.parametrize("is_event", [False, True])
async def test_a_failure_in_a_stream_closes_the_block(site: Site, is_event: bool) -> None:
    error = GenerationFailed("x")
    site.generator.script = [Accepted(3), TextDelta("Hel"), Failed(error.info())]
    if not is_event:
        site.generator.script[-1] = error
    reply = await site.http.post(PATHS[0], json=BODY | {"stream": True})
    names = [line for line in reply.text.split("\n") if line.startswith("event: ")]
    assert names[-2:] == ["event: content_block_stop", "event: error"]
    assert "message_stop" not in reply.text


async def test_what_serves_all_routes_answers_in_openais_form(start: Start) -> None:
    """http-anthropic, 2: the key and the size are looked at before the dialect is known."""
    site = await start(api_keys=["k"], body_bytes=20_000)
    reply = await site.http.post(PATHS[0], json=BODY)
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"
    assert "type" not in reply.json()
    for key in ({"X-Api-Key": "k"}, {"Authorization": "Bearer k"}):
        assert (await site.http.post(PATHS[0], json=BODY, headers=key)).status_code == 200
        reply = await site.http.post(PATHS[0], json=BODY | {"x": "x" * 20_000}, headers=key)
        assert (reply.status_code, "type" in reply.json()) == (413, False)


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_that_were_left_out_are_named(site: Site, stream: bool) -> None:
    body = BODY | {"stream": stream}
    reply = await site.http.post(PATHS[0], json=body | {"tools": [SEARCH, FETCH, SEARCH]})
    assert reply.status_code == 200
    assert reply.headers[HEADER] == "web_search_20250305, web_fetch__X-Evil:_1"
    assert "X-Evil" not in reply.headers
    assert HEADER not in (await site.http.post(PATHS[0], json=body)).headers


async def test_they_are_logged_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    kind = {"type": "told_once_20260101", "name": "x"}
    with caplog.at_level(logging.INFO, logger=headers.__name__):
        for _ in range(2):
            await site.http.post(PATHS[0], json=BODY | {"tools": [kind]})
    assert caplog.text.count("told_once_20260101") == 1


async def test_they_may_be_refused(start: Start) -> None:
    site = await start(routes={"strict_tools": True})
    reply = await site.http.post(PATHS[0], json=BODY | {"tools": [SEARCH]})
    assert (reply.status_code, kind_of(reply)) == (400, "invalid_request_error")
    assert "tools[0]" in reply.json()["error"]["message"]


STAMP = "x-anthropic-billing-header: cch=4be20;"


@pytest.mark.parametrize(("pins", "sent"), [(True, "cch=fffff;"), (False, "cch=4be20;")])
async def test_the_stamp_is_pinned_unless_it_is_not(start: Start, pins: bool, sent: str) -> None:
    site = await start(routes={"anthropic": {"pin_billing_stamp": pins}})
    turns = [{"role": "user", "content": STAMP}]
    await site.http.post(PATHS[0], json=BODY | {"system": STAMP, "messages": turns})
    system, user = site.generator.requests[0].chat.messages
    assert (system.text, user.text) == (f"x-anthropic-billing-header: {sent}", STAMP)


async def test_a_stamp_in_a_chat_stays_as_it_is(site: Site) -> None:
    await site.post(BODY | {"messages": [{"role": "system", "content": STAMP}, *BODY["messages"]]})
    assert site.generator.requests[0].chat.messages[0].text == STAMP


async def test_thinking_is_shown_on_request(site: Site) -> None:
    site.generator.script = [Accepted(3), ReasoningDelta("hm"), TextDelta("Hello"), *ENDING]
    hidden = (await site.http.post(PATHS[0], json=BODY)).json()["content"]
    assert [block["type"] for block in hidden] == ["text"]
    asked = BODY | {"thinking": {"type": "enabled"}}
    shown = (await site.http.post(PATHS[0], json=asked)).json()["content"]
    assert shown[0] == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert [request.remembers_thoughts for request in site.generator.requests] == [False, True]


async def test_a_silent_stream_has_comments(start: Start) -> None:
    site = await start(sse_ping_interval=0.05)
    site.generator.script = [*HELLO[:2], 0.3, *HELLO[2:]]
    reply = await site.http.post(PATHS[0], json=BODY | {"stream": True})
    assert reply.text.count("\n:") >= 2
    assert reply.text.count("event: ping") == 1
