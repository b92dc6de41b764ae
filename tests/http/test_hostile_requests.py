"""What a fuzz has found: requests that no client of ours sends, each with the answer it gets."""

import asyncio
import json
from typing import Any

import pytest

from tests.http.site import Site, Start

pytestmark = pytest.mark.asyncio
JSON = {"Content-Type": "application/json"}


async def told(site: Site, sent: bytes) -> tuple[int, list[bytes], bytes]:
    """Status, header lines and body, on a connection that the server then closes."""
    reader, writer = await site.connect()
    writer.write(sent)
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    line, *headers = head.split(b"\r\n")
    return int(line.split(b" ")[1]), headers, body


@pytest.mark.parametrize("path", ["/infill\x00", "http://[::1", "/\x7f"])
async def test_an_address_that_is_none_is_told_so(start: Start, path: str) -> None:
    site = await start()
    sent = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    status, _, body = await told(site, sent.encode())
    assert status in (400, 404)
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param(b"HEAD /health HTTP/9.9", 400, id="version"),
        pytest.param(b"HEAD /" + b"q" * 20_000 + b" HTTP/1.1", 414, id="long"),
        pytest.param(b"HEAD /health HTTP/1.1\r\nX: " + b"y" * 20_000, 431, id="headers"),
    ],
)
async def test_no_answer_to_head_has_a_body(start: Start, line: bytes, status: int) -> None:
    site = await start()
    answer = await told(site, line + b"\r\nHost: x\r\n\r\n")
    assert (answer[0], answer[2]) == (status, b"")


@pytest.mark.parametrize(
    "junk", [b"http://a\nX-Injected: 1", b"a\rX-Injected: 1", b"\x7f", b"\xff"]
)
async def test_nobody_writes_headers_by_asking_for_them(start: Start, junk: bytes) -> None:
    site = await start()
    asked = b"Origin: %b\r\nAccess-Control-Request-Headers: %b\r\n" % (junk, junk)
    sent = b"OPTIONS /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + asked + b"\r\n"
    status, headers, _ = await told(site, sent)
    assert status == 200
    assert not any(junk in line for line in headers)
    assert b"Content-Type" in b"".join(headers)


@pytest.mark.parametrize("scale", ["1" + "0" * 400, "NaN", "1e400", '"\\ud800"'])
async def test_a_scale_beyond_all_numbers_is_refused(start: Start, scale: str) -> None:
    site = await start()
    body = f'[{{"id": 0, "scale": {scale}}}]'
    answer = await site.http.post("/lora-adapters", content=body)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"code", "message", "type"}


async def test_names_that_are_no_text_find_no_stream(start: Start) -> None:
    """Bytes of a header that are no UTF-8 are kept as halves of surrogate pairs, which a body
    could name as well: no JSON can show them."""
    site = await start()
    body: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    named = {**JSON, "X-Conversation-Id": b"\xff\xfe"}
    streamed = await site.http.post(
        "/v1/chat/completions", json=body | {"stream": True}, headers=named
    )
    assert streamed.status_code == 200
    found = await site.http.post(
        "/v1/streams/lookup", content=rb'{"conversation_ids": ["\udcff\udcfe"]}'
    )
    assert found.status_code == 400
