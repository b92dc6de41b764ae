"""How large a body may be, and when that is said."""

import asyncio

import pytest

from tests.http.site import Site, Start

pytestmark = pytest.mark.asyncio
CHAT = "/v1/chat/completions"
LIMIT = 20_000
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def status_of(site: Site, sent: bytes) -> bytes:
    """Of the answer to bytes after which nothing comes; the connection is left open."""
    reader, writer = await site.connect()
    writer.write(sent)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    writer.close()
    return head.split(b" ", 2)[1]


async def test_a_body_that_is_announced_as_too_large_is_refused_before_it_comes(
    start: Start,
) -> None:
    site = await start(body_bytes=LIMIT)
    head = f"{HEAD}Content-Length: {LIMIT + 1}\r\n\r\n"
    assert await status_of(site, head.encode()) == b"413"


async def test_nor_is_a_client_told_to_go_on_that_asked(start: Start) -> None:
    site = await start(body_bytes=LIMIT)
    head = f"{HEAD}Content-Length: {LIMIT + 1}\r\nExpect: 100-continue\r\n\r\n"
    assert await status_of(site, head.encode()) != b"200"


@pytest.mark.parametrize(("more", "status"), [(0, b"400"), (1, b"413")])
async def test_chunks_are_counted_as_they_come(start: Start, more: int, status: bytes) -> None:
    site = await start(body_bytes=LIMIT)
    half = LIMIT // 2
    chunks = b"%x\r\n%b\r\n" % (half, b" " * half)
    chunks += b"%x\r\n%b\r\n" % (half + more, b" " * (half + more))
    head = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    assert await status_of(site, head + chunks + b"0\r\n\r\n") == status
