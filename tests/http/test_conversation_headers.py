"""The generation route while conversations are on: whose a request is, and what headers say."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, Source
from mlxcel.core.conversations import IdRules
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.generation.conversation_files import ConversationFolder
from mlxcel.generation.conversations import ConversationBook, ConversationService
from tests.generation.file_worker import FileWorker
from tests.http.site import BODY, Site, Start

pytestmark = pytest.mark.asyncio
HIT = CacheReport(status=CacheStatus.HIT, reused=2, source=Source.MEMORY)
MISS = CacheReport(status=CacheStatus.MISS)
NAMES = ("x-conv-id", "x-conv-kv", "x-conv-cached-tokens", "x-conv-processing-tokens")


def script(arrival: CacheReport | None, used: CacheReport | None) -> list[Event]:
    timings = Timings(queued_ms=1.0, prompt_ms=1.0, decode_ms=1.0, total_ms=4.0, cache=used)
    usage = Usage(prompt_tokens=3, completion_tokens=1, cached_tokens=0)
    return [
        Accepted(3, arrival),
        TextDelta("Hi"),
        ChoiceFinished(FinishReason.EOS),
        Finished(usage=usage, timings=timings),
    ]


def switched_on(site: Site, folder: Path, **ids: Any) -> None:
    site.generator.conversations = ConversationService(
        ids=IdRules(**ids),
        book=ConversationBook(most=4, ttl_s=0),
        folder=ConversationFolder(folder, model="m", most_bytes=9, budget_bytes=9),
        chat=FileWorker(),
    )


def shown(headers: Any) -> tuple[str | None, ...]:
    return tuple(headers.get(name) for name in NAMES)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(False, ("a", "hit", "2", "1"), id="json-what-was-used"),
        pytest.param(True, ("a", "fresh", "0", "3"), id="sse-what-was-there"),
    ],
)
async def test_headers(site: Site, tmp_path: Path, stream: bool, expected: Any) -> None:
    switched_on(site, tmp_path)
    site.generator.script = list(script(MISS, HIT))
    answer = await site.post(BODY | {"conversation": "a", "stream": stream})
    assert shown(answer.headers) == expected


async def test_a_stream_that_begins_with_a_comment_promises_nothing(
    start: Start, tmp_path: Path
) -> None:
    site = await start(sse_ping_interval=0.05)
    switched_on(site, tmp_path)
    site.generator.script = [0.2, *script(MISS, HIT)]
    answer = await site.post(BODY | {"conversation": "a", "stream": True})
    assert shown(answer.headers) == ("a", "pending", None, None)


@pytest.mark.parametrize(
    ("body", "header", "conversation"),
    [
        pytest.param({"conversation": "a", "conversation_id": "b"}, "c", "a", id="conversation"),
        pytest.param({"conversation_id": "b"}, "c", "b", id="conversation-id"),
        pytest.param({}, " c ", "c", id="header"),
        pytest.param({"conversation": " "}, "", "client:127.0.0.1", id="all-blank"),
        pytest.param({}, None, "client:127.0.0.1", id="address"),
    ],
)
async def test_precedence(
    site: Site, tmp_path: Path, body: dict[str, Any], header: str | None, conversation: str
) -> None:
    switched_on(site, tmp_path)
    sent = {} if header is None else {"X-Conversation-Id": header.strip()}
    answer = await site.post(BODY | body, headers=sent)
    assert answer.headers["x-conv-id"] == conversation
    assert site.generator.requests[-1].cache.conversation == conversation


async def test_spaces_around_a_header_are_trimmed(site: Site, tmp_path: Path) -> None:
    switched_on(site, tmp_path)
    reader, writer = await site.connect()
    body = b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}'
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"X-Conversation-Id:   c  \r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    text = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    assert "X-Conv-Id: c\r\n" in text


async def test_nobody_is_bound_where_that_is_off(site: Site, tmp_path: Path) -> None:
    switched_on(site, tmp_path, has_auto=False)
    site.generator.script = list(script(HIT, HIT))
    answer = await site.post()
    assert shown(answer.headers) == ("", "none", "2", "1")
    assert "metadata" not in answer.json()


async def test_a_reset(site: Site, tmp_path: Path) -> None:
    switched_on(site, tmp_path)
    answer = await site.post(BODY | {"conversation": "a", "reset_conversation": True})
    assert shown(answer.headers) == ("a", "none", "0", "3")
    assert not site.generator.requests[-1].cache.is_on


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"conversation": 5}, id="number"),
        pytest.param({"reset_conversation": "yes"}, id="no-boolean"),
        pytest.param({"conversation": "x" * 513}, id="too-long"),
    ],
)
async def test_fields_have_types_only_while_they_mean_something(
    site: Site, tmp_path: Path, body: dict[str, Any]
) -> None:
    off = await site.post(BODY | body)
    switched_on(site, tmp_path)
    on = await site.post(BODY | body)
    assert (off.status_code, on.status_code) == (200, 400)
    assert shown(off.headers) == (None,) * 4
    assert "metadata" not in off.json()
    assert "input_tokens" not in off.json()["usage"]


async def test_a_header_too_long_is_the_clients_mistake(site: Site, tmp_path: Path) -> None:
    switched_on(site, tmp_path)
    answer = await site.post(BODY, headers={"X-Conversation-Id": "x" * 513})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "conversation")
