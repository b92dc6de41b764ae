"""Clients that speak HTTP/1.0: a stream ends with its connection, and has no chunks."""

import asyncio
import json
from typing import Any

import pytest

from mlxcel.core.events import Accepted, TextDelta
from tests.http.site import BODY, Site, Start, eventually

pytestmark = pytest.mark.asyncio
STREAM = BODY | {"stream": True}
KEEP_ALIVE = b"Connection: keep-alive\r\n"


def old(body: dict[str, Any], header: bytes = b"") -> bytes:
    data = json.dumps(body).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n%b"
        b"Content-Length: %d\r\n\r\n%b" % (header, len(data), data)
    )


async def talk(site: Site, request: bytes) -> tuple[list[str], str]:
    """Header lines in lower case, and the body up to the end of the connection."""
    reader, writer = await site.connect()
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head.lower().split("\r\n"), body


@pytest.mark.parametrize("header", [b"", KEEP_ALIVE], ids=["close", "keep-alive"])
async def test_a_stream_has_no_chunks_and_ends_with_its_connection(
    site: Site, header: bytes
) -> None:
    head, body = await talk(site, old(STREAM, header))
    assert head[0] == "http/1.1 200 ok"
    assert not [line for line in head if line.startswith("transfer-encoding")]
    assert [line for line in head if line.startswith("connection")] == ["connection: close"]
    assert "content-type: text/event-stream" in head
    assert any(line.startswith("x-request-id: chatcmpl-") for line in head)
    frames = body.split("\n\n")
    assert all(frame.startswith("data: ") for frame in frames[:-1])
    assert frames[-2:] == ["data: [DONE]", ""]


async def test_a_failure_inside_a_stream_is_told(site: Site) -> None:
    site.generator.script = [Accepted(3), TextDelta("Hel"), ValueError("x")]
    _, body = await talk(site, old(STREAM))
    assert body.split("\n\n")[-2].startswith('data: {"error"')


async def test_a_failure_before_the_stream_has_its_own_status(site: Site) -> None:
    head, body = await talk(site, old(STREAM | {"n": 9}))
    assert head[0].startswith("http/1.1 400")
    assert json.loads(body)["error"]["param"] == "n"


async def test_comments_keep_a_stream_awake(start: Start) -> None:
    site = await start(sse_ping_interval=0.05)
    site.generator.script = [0.3, *site.generator.script]
    _, body = await talk(site, old(STREAM))
    assert body.startswith(":\n\n")
    assert body.endswith("data: [DONE]\n\n")


async def test_a_client_that_leaves_ends_the_generation(site: Site) -> None:
    site.generator.script = [Accepted(3), asyncio.Event()]
    reader, writer = await site.connect()
    writer.write(old(STREAM))
    await asyncio.wait_for(reader.readuntil(b"assistant"), 5)
    assert not site.generator.closed.is_set()
    writer.close()
    await eventually(site.generator.closed.is_set)


async def test_a_plain_answer_has_its_length(site: Site) -> None:
    head, body = await talk(site, old(BODY))
    assert f"content-length: {len(body)}" in head
    assert json.loads(body)["choices"][0]["message"]["content"] == "Hello"
