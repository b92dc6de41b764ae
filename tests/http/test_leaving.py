"""Clients that leave, readers that are slow, and a server that shuts down."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from sanic import Request

from mlxcel.core.events import Accepted, TextDelta
from mlxcel.http import app
from mlxcel.http.head import request_id
from tests.http.site import BODY, ENDING, HELLO, Scripted, Site, Start, eventually

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]
STREAM = BODY | {"stream": True}


def raw(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(data), data)
    )


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not-accepted-yet"])
@pytest.mark.parametrize("size", [2, 300_000], ids=["short", "long"])
async def test_a_client_that_leaves_ends_the_generation(
    site: Site, body: dict[str, Any], begun: bool, size: int
) -> None:
    site.generator.script = [Accepted(3), asyncio.Event()] if begun else [asyncio.Event()]
    _, writer = await site.connect()
    writer.write(raw(body | {"messages": [{"role": "user", "content": "x" * size}]}))
    await eventually(lambda: site.generator.requests and site.generator.yielded == int(begun))
    assert not site.generator.closed.is_set()
    writer.close()
    await eventually(site.generator.closed.is_set)


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_a_client_that_closes_its_side_only_has_left(
    site: Site, body: dict[str, Any]
) -> None:
    site.generator.script = [Accepted(3), asyncio.Event()]
    _, writer = await site.connect()
    writer.write(raw(body))
    await eventually(lambda: site.generator.yielded)
    assert not site.generator.closed.is_set()
    writer.write_eof()
    await eventually(site.generator.closed.is_set)
    writer.close()


ASKED: dict[str, tuple[str, str, Any]] = {
    "plain": ("POST", "/v1/chat/completions", BODY),
    "stream": ("POST", "/v1/chat/completions", STREAM),
    "head": ("HEAD", "/health", None),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
async def test_an_answer_to_a_connection_that_just_broke_is_no_error(
    site: Site,
    asked: tuple[str, str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Broken when all is ready to be written: the task that writes has not been told yet."""

    def broken(request: Request) -> str:
        request.transport.abort()
        return request_id(request)

    method, path, body = asked
    with monkeypatch.context() as patch:
        patch.setattr(app, "request_id", broken)
        with pytest.raises(httpx.RemoteProtocolError):
            await site.http.request(method, path, json=body)
    assert (await site.post()).status_code == 200
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_a_client_that_leaves_in_its_body_is_not_waited_for(site: Site) -> None:
    before = asyncio.all_tasks()
    _, writer = await site.connect()
    writer.write(raw(BODY)[:-1])
    await eventually(lambda: len(asyncio.all_tasks() - before) == 1)
    await asyncio.sleep(0.02)  # the server reads its body
    writer.transport.abort()
    await eventually(lambda: not asyncio.all_tasks() - before)


async def test_the_server_answers_after_a_client_left(site: Site) -> None:
    site.generator.script = [Accepted(3), asyncio.Event()]
    with pytest.raises(httpx.ReadTimeout):
        await site.post(STREAM, timeout=0.2)
    site.generator.script = list(HELLO)
    assert (await site.post()).status_code == 200


async def test_a_stream_leaves_the_connection_usable(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(raw(STREAM))
    first = await reader.readuntil(b"\r\n0\r\n\r\n")
    assert b"data: [DONE]" in first
    writer.write(raw(BODY))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_failed_stream_leaves_the_connection_usable(site: Site) -> None:
    site.generator.script = [Accepted(3), ValueError("x")]
    reader, writer = await site.connect()
    writer.write(raw(STREAM))
    assert b'"error"' in await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), 5)
    writer.write(raw(BODY))
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    writer.close()


async def test_a_slow_reader_slows_the_generator_and_loses_nothing(site: Site) -> None:
    pieces, size = 400, 50_000
    site.generator.script = [Accepted(3), *[TextDelta("x" * size)] * pieces, *ENDING]
    reader, writer = await site.connect()
    writer.write(raw(STREAM))
    await eventually(lambda: site.generator.yielded > 0)
    await asyncio.sleep(0.3)
    assert site.generator.yielded < pieces
    body = b""
    while b"[DONE]" not in body[-200:]:
        body += await asyncio.wait_for(reader.read(1 << 20), 20)
    assert body.count(b"x" * size) == pieces
    writer.close()


async def test_a_drain_lets_open_answers_finish(site: Site) -> None:
    gate = asyncio.Event()
    site.generator.script = [Accepted(3), gate, *ENDING]
    answer = asyncio.create_task(site.post(STREAM))
    await eventually(lambda: site.generator.yielded)
    drain = asyncio.create_task(site.server.drain(20))
    await asyncio.sleep(0)
    health = await site.http.get("/health")
    refused = await site.post()
    gate.set()
    assert (health.status_code, health.json()["status"]) == (503, "draining")
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "unavailable_error")
    assert "draining" in refused.json()["error"]["message"]
    assert await drain == 0
    assert "[DONE]" in (await answer).text


async def test_a_drain_of_an_idle_server_is_over_at_once(site: Site) -> None:
    assert await asyncio.wait_for(site.server.drain(60), 5) == 0


async def test_a_drain_cuts_what_is_left_and_tells_it(site: Site, generator: Scripted) -> None:
    generator.script = [Accepted(3), TextDelta("Hel"), asyncio.Event()]
    stream = asyncio.create_task(site.post(STREAM))
    plain = asyncio.create_task(site.post())
    await eventually(lambda: generator.yielded == 4)
    assert await site.server.drain(0.05) == 2
    text, answer = (await stream).text, await plain
    assert '"type":"unavailable_error"' in text
    assert "[DONE]" not in text
    assert '"finish_reason":"' not in text
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable_error")
    assert generator.closed.is_set()


async def test_a_drain_does_not_wait_for_a_reader_that_stopped(site: Site) -> None:
    site.generator.script = [Accepted(3), *[TextDelta("x" * 100_000)] * 400, *ENDING]
    _, writer = await site.connect()
    writer.write(raw(STREAM))
    await eventually(lambda: site.generator.yielded > 10)
    assert await asyncio.wait_for(site.server.drain(0.05), 10) == 1
    await asyncio.wait_for(site.generator.closed.wait(), 10)
    writer.close()


async def test_stop_closes_idle_and_open_connections(start: Start) -> None:
    site = await start()
    site.generator.script = [Accepted(3), asyncio.Event()]
    idle_reader, idle = await site.connect()
    idle.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    await idle_reader.readuntil(b"}")
    open_reader, open_ = await site.connect()
    open_.write(raw(STREAM))
    await open_reader.readuntil(b"assistant")
    await asyncio.wait_for(site.server.stop(), 10)
    await asyncio.wait_for(site.generator.closed.wait(), 5)
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset, as the platform has it
        await site.connect()
    idle.close()
    open_.close()
