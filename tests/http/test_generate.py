"""The generation route over real HTTP: answers, streams, and failures before and in them."""

import asyncio
import json
from typing import Any

import pytest

from mlxcel.core.errors import ErrorInfo, QueueFull, Unavailable
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Failed,
    FinishReason,
    ReasoningDelta,
    TextDelta,
)
from mlxcel.core.request import Lane
from tests.http.site import BODY, ENDING, MODEL, SAMPLING, Site, Start

pytestmark = pytest.mark.asyncio
STREAM = BODY | {"stream": True}
DIED = Failed(ErrorInfo(code="worker_died", status=503, message="the chat worker ended"))


def chunks(text: str) -> list[Any]:
    """Every data frame of a stream; `[DONE]` stays text."""
    frames = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [frame if frame == "[DONE]" else json.loads(frame) for frame in frames]


async def test_plain_answer(site: Site) -> None:
    response = await site.post()
    body = response.json()
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert (body["object"], body["model"]) == ("chat.completion", MODEL.id)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert body["timings"]["effective_per_second"] == 50.0
    assert body["id"].startswith("chatcmpl-")
    assert site.generator.requests[0].id == body["id"]
    assert site.generator.closed.is_set()


async def test_stream(site: Site) -> None:
    response = await site.post(STREAM | {"stream_options": {"include_usage": True}})
    frames = chunks(response.text)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert "alt-svc" not in response.headers
    assert frames.pop() == "[DONE]"
    assert {frame["object"] for frame in frames} == {"chat.completion.chunk"}
    assert {frame["id"] for frame in frames} == {site.generator.requests[0].id}
    choices = [frame["choices"][0] for frame in frames[:-1]]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant"},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert frames[-1]["choices"] == []
    assert frames[-1]["usage"] == (await site.post()).json()["usage"]


async def test_aliases_of_the_path_are_the_same_route(site: Site) -> None:
    assert (await site.http.post("/chat/completions", json=BODY)).status_code == 200


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        pytest.param(QueueFull(), 503, "server_busy", id="queue-full"),
        pytest.param(Unavailable("restarting"), 503, "unavailable_error", id="restarting"),
        pytest.param(ValueError("secret detail"), 500, "server_error", id="our-own-bug"),
        pytest.param(DIED, 503, "server_error", id="failed-event"),
    ],
)
async def test_a_refusal_before_the_stream_is_json(
    site: Site, body: dict[str, Any], error: Any, status: int, kind: str
) -> None:
    site.generator.script = [error]
    response = await site.post(body)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert response.json()["error"]["type"] == kind
    assert "secret detail" not in response.text


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(DIED, id="failed-event"),
        pytest.param(Unavailable("gone"), id="known-error"),
        pytest.param(ValueError("secret detail"), id="our-own-bug"),
    ],
)
async def test_a_failure_in_mid_stream_is_an_error_event_and_the_end(
    site: Site, failure: Any
) -> None:
    site.generator.script = [Accepted(3), TextDelta("Hel"), failure]
    response = await site.post(STREAM)
    frames = chunks(response.text)
    assert response.status_code == 200
    assert set(frames[-1]) == {"error"}
    assert set(frames[-1]["error"]) == {"message", "type", "param", "code"}
    assert "[DONE]" not in frames
    assert all(frame["choices"][0]["finish_reason"] is None for frame in frames[:-1])
    assert "secret detail" not in response.text
    assert site.generator.closed.is_set()


async def test_a_failure_in_a_plain_answer_has_its_status(site: Site) -> None:
    site.generator.script = [Accepted(3), TextDelta("Hel"), DIED]
    response = await site.post()
    assert (response.status_code, response.json()["error"]["type"]) == (503, "server_error")


async def test_events_that_end_without_a_finish_are_an_error(site: Site) -> None:
    site.generator.script = []
    assert (await site.post()).status_code == 500
    assert (await site.post(STREAM)).status_code == 500


async def test_a_request_takes_the_settings_of_its_arrival(site: Site) -> None:
    await site.post()
    request = site.generator.requests[0]
    assert request.settings.version == 1
    assert request.max_tokens == 512


@pytest.mark.parametrize(
    ("sent", "lane"),
    [
        pytest.param({}, Lane.NORMAL, id="none"),
        pytest.param({"X-Priority": "high"}, Lane.HIGH, id="high"),
        pytest.param({"x-priority": "HIGH"}, Lane.HIGH, id="any-case"),
        pytest.param({"X-Priority": "Low"}, Lane.LOW, id="low"),
        pytest.param({"X-Priority": "normal"}, Lane.NORMAL, id="normal"),
        pytest.param({"X-Priority": "urgent"}, Lane.NORMAL, id="unknown"),
        pytest.param({"X-Priority": ""}, Lane.NORMAL, id="empty"),
        pytest.param({"X-Priority": "0"}, Lane.NORMAL, id="number"),
    ],
)
async def test_the_lane_comes_from_a_header(site: Site, sent: dict[str, str], lane: Lane) -> None:
    assert (await site.post(headers=sent)).status_code == 200
    assert site.generator.requests[0].lane is lane


async def test_the_lane_is_trimmed(site: Site) -> None:
    body = json.dumps(BODY)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    reader, writer = await site.connect()
    writer.write(f"{head}X-Priority: \t High \t\r\n\r\n{body}".encode())
    assert (await asyncio.wait_for(reader.readline(), 5)).split()[1] == b"200"
    writer.close()
    assert site.generator.requests[0].lane is Lane.HIGH


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_several_choices(site: Site, body: dict[str, Any]) -> None:
    site.generator.script = [
        Accepted(3),
        TextDelta("a", 0),
        TextDelta("b", 1),
        ChoiceFinished(FinishReason.LENGTH, 1),
        *ENDING,
    ]
    response = await site.post(body | {"n": 2})
    assert site.generator.requests[0].choices == 2
    whole = chunks(response.text)[:-1] if body is STREAM else [response.json()]
    found = [choice for part in whole for choice in part["choices"]]
    reasons = {c["index"]: c["finish_reason"] for c in found if c["finish_reason"]}
    assert reasons == {0: "stop", 1: "length"}
    said = [(c["index"], (c.get("message") or c["delta"]).get("content")) for c in found]
    assert [entry for entry in said if entry[1] is not None] == [(0, "a"), (1, "b")]


async def test_defaults_of_the_server_reach_the_request(start: Start) -> None:
    changed = SAMPLING | {"typical_p": 0.9, "stop": ["###"], "ignore_eos": True}
    site = await start(sampling=changed)
    await site.post()
    request = site.generator.requests[0]
    assert (request.sampling.typical_p, request.stop, request.ignore_eos) == (0.9, ("###",), True)


@pytest.mark.parametrize(
    ("alias", "keys"),
    [
        pytest.param("reasoning", {"reasoning_content", "reasoning"}, id="alias"),
        pytest.param("none", {"reasoning_content"}, id="none"),
        pytest.param(None, {"reasoning_content"}, id="null"),
    ],
)
async def test_the_second_name_of_reasoning(
    start: Start, alias: str | None, keys: set[str]
) -> None:
    site = await start(reasoning_alias=alias)
    site.generator.script = [Accepted(3), ReasoningDelta("hm"), *ENDING]
    message = (await site.post()).json()["choices"][0]["message"]
    assert set(message) == {"role", "content"} | keys
    streamed = chunks((await site.post(STREAM)).text)
    assert streamed[1]["choices"][0]["delta"] == dict.fromkeys(keys, "hm")


async def test_headers_leave_before_the_first_token(site: Site) -> None:
    gate = asyncio.Event()
    site.generator.script = [Accepted(3), gate, *ENDING]
    async with site.http.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        lines = response.aiter_lines()
        assert '"delta":{"role":"assistant"}' in await anext(lines)
        gate.set()
        assert [line async for line in lines][-2] == "data: [DONE]"


async def test_silence_is_filled_with_comments(start: Start) -> None:
    site = await start(sse_ping_interval=0.05)
    site.generator.script = [Accepted(3), 0.4, *ENDING]
    text = (await site.post(STREAM)).text
    assert 3 <= text.count(":\n\n") <= 8
    assert text.endswith("data: [DONE]\n\n")


async def test_no_comments_without_an_interval(start: Start) -> None:
    site = await start(sse_ping_interval=-1)
    site.generator.script = [Accepted(3), 0.2, *ENDING]
    assert "\n:" not in (await site.post(STREAM)).text


async def test_a_stream_that_talks_needs_no_comments(start: Start) -> None:
    site = await start(sse_ping_interval=0.2)
    talk: list[Any] = [step for _ in range(20) for step in (TextDelta("a"), 0.02)]
    site.generator.script = [Accepted(3), *talk, *ENDING]
    assert ":\n\n" not in (await site.post(STREAM)).text


async def test_the_id_of_the_client_is_echoed(site: Site) -> None:
    response = await site.post(headers={"X-Request-Id": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_without_one_the_id_of_the_answer_is_sent(site: Site, body: dict[str, Any]) -> None:
    response = await site.post(body)
    assert response.headers["x-request-id"] == site.generator.requests[0].id


async def test_no_generator_is_501(start: Start) -> None:
    site = await start(generate=None)
    response = await site.post()
    assert (response.status_code, response.json()["error"]["type"]) == (501, "not_implemented")


async def test_unknown_models_can_be_refused(start: Start) -> None:
    site = await start(routes={"unknown_model": "refuse"})
    for name in MODEL.names:
        assert (await site.post(BODY | {"model": name})).status_code == 200
    response = await site.post(BODY | {"model": "gpt-4o"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


async def test_the_model_may_be_left_out_where_the_recipe_says_so(start: Start) -> None:
    nameless = {"messages": BODY["messages"]}
    assert (await (await start()).post(nameless)).status_code == 400
    assert (await (await start(routes={"require_model": False})).post(nameless)).status_code == 200
