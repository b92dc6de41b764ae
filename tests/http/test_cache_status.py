"""The header X-Cache-Status over real HTTP: on answers in one piece, streams, and streams that
had to begin before anything was known."""

import asyncio

import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, Divergence, Reject, Source
from mlxcel.core.errors import QueueFull
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Finished,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from tests.http.site import BODY, HELLO, Scripted, Site, Start

pytestmark = pytest.mark.asyncio
STREAM = BODY | {"stream": True, "stream_options": {"include_usage": True}}
THERE = CacheReport(status=CacheStatus.HIT, reused=64, source=Source.DISK)
USED = CacheReport(status=CacheStatus.HIT, reused=32, source=Source.MEMORY)
MISS = CacheReport(
    status=CacheStatus.MISS,
    reason=Reject.EMPTY_SET,
    diverged=Divergence(at=17, differs=("tools",), prompt_text="a", entry_text="b"),
)


def play(generator: Scripted, there: CacheReport | None, used: CacheReport | None) -> None:
    cached = None if used is None else used.reused
    usage = Usage(prompt_tokens=70, completion_tokens=2, cached_tokens=cached)
    timings = Timings(queued_ms=1.0, prompt_ms=10.0, decode_ms=20.0, total_ms=40.0, cache=used)
    generator.script = [
        Accepted(70, there),
        TextDelta("Hi"),
        ChoiceFinished(FinishReason.EOS),
        Finished(usage=usage, timings=timings),
    ]


async def test_answer_in_one_piece_says_what_was_used(site: Site) -> None:
    play(site.generator, THERE, USED)
    response = await site.post()
    assert response.headers["x-cache-status"] == "hit; reused=32; source=memory"
    assert response.json()["timings"]["cache"]["reused_tokens"] == 32
    assert response.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}


async def test_stream_says_what_was_there_and_tells_at_the_end_what_was_used(site: Site) -> None:
    play(site.generator, THERE, USED)
    response = await site.post(STREAM)
    assert response.headers["x-cache-status"] == "hit; reused=64; source=disk"
    assert '"cache":{"status":"hit","reused_tokens":32,"source":"memory"' in response.text
    assert '"prompt_tokens_details":{"cached_tokens":32}' in response.text


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_miss_names_what_differs(site: Site, body: dict[str, object]) -> None:
    play(site.generator, MISS, MISS)
    response = await site.post(body)
    assert response.headers["x-cache-status"] == "miss; reason=empty_set; differs=tools; at=17"


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_engine_without_a_cache_says_off_and_nothing_else(
    site: Site, body: dict[str, object]
) -> None:
    site.generator.script = list(HELLO)
    response = await site.post(body)
    assert response.headers["x-cache-status"] == "off; reason=disabled"
    assert "cached_tokens" not in response.text
    assert '"cache"' not in response.text


async def test_stream_that_began_with_a_ping_says_pending(start: Start) -> None:
    site = await start(sse_ping_interval=0.05)
    gate = asyncio.Event()
    play(site.generator, THERE, USED)
    site.generator.script.insert(0, gate)
    async with site.http.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        assert response.headers["x-cache-status"] == "pending"
        gate.set()
        text = "".join([part async for part in response.aiter_text()])
    assert '"cache":{"status":"hit","reused_tokens":32' in text


async def test_refused_request_has_no_status(site: Site) -> None:
    site.generator.script = [QueueFull()]
    response = await site.post()
    assert response.status_code == 503
    assert "x-cache-status" not in response.headers


async def test_wish_for_a_cold_prompt_reaches_the_generator(site: Site) -> None:
    await site.post(BODY | {"cache_prompt": False, "user": "eve"})
    asked = site.generator.requests[-1].cache
    assert (asked.is_on, asked.session) == (False, "eve")
