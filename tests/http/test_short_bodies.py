"""Routes that take a name or a short list read no megabytes while all others wait."""

from typing import Any

import pytest

from mlxcel.http.body import SHORT_BYTES
from tests.http.site import Start

pytestmark = pytest.mark.asyncio
FILL = " " * SHORT_BYTES


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/streams/lookup", "at most 1048576 on this route"),
        ("/v1/chat/completions/control", "at most 1048576 on this route"),
        ("/lora-adapters", "must be an array"),
    ],
)
async def test_more_than_a_short_body_is_refused_unread(
    start: Start, path: str, words: str
) -> None:
    site = await start(body_bytes=4 * SHORT_BYTES)
    body = "[]" if path == "/lora-adapters" else '{"id": "a", "action": "reasoning_end"}'
    answer = await site.http.post(path, content=body)
    assert answer.status_code == 200
    answer = await site.http.post(path, content=body + FILL)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_a_patch_of_thousands_of_names_is_refused_whole(
    start: Start, is_wrapped: bool
) -> None:
    site = await start()
    names = {"temperature": 0.5} | {f"name_{n}": n for n in range(1024)}
    body: dict[str, Any] = {"values": names} if is_wrapped else names
    answer = await site.http.patch("/v1/settings", json=body)
    assert answer.status_code == 400
    assert answer.json() == {"error": "the patch has 1025 names; at most 1024 in one"}


async def test_keys_beside_a_patch_are_told_cut_short(start: Start) -> None:
    site = await start()
    body: dict[str, Any] = {"values": {}} | {f"name_{n}": n for n in range(10_000)}
    answer = await site.http.patch("/v1/settings", json=body)
    assert answer.status_code == 400
    assert len(answer.content) < 1000
