"""Media that the model cannot take is refused before anybody is asked for it."""

import asyncio
from typing import Any

import pytest

from tests.http.site import BODY, Site

pytestmark = pytest.mark.asyncio


def chat(part: dict[str, Any]) -> dict[str, Any]:
    return BODY | {"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, part]}]}


@pytest.mark.parametrize("kind", ["image_url", "video_url"])
async def test_url_is_not_fetched(site: Site, kind: str) -> None:
    asked: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    part = {"type": kind, kind: {"url": f"http://127.0.0.1:{port}/x.png"}}
    response = await site.post(chat(part))
    assert response.status_code == 501
    assert response.json()["error"]["type"] == "not_supported_error"
    assert "takes text only" in response.json()["error"]["message"]
    assert site.generator.requests == []
    await asyncio.sleep(0.05)
    server.close()
    assert asked == []
