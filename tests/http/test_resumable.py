"""Streams that outlive their connection: /v1/stream and /v1/streams/lookup."""

import asyncio

import httpx
import pytest

from mlxcel.core.events import Accepted, ChoiceFinished, Finished, FinishReason, TextDelta
from mlxcel.http import resumable
from mlxcel.http.resumable import StreamSession, StreamSessions
from tests.http.site import BODY, TIMINGS, USAGE, Scripted, Site, Start

pytestmark = pytest.mark.asyncio

NAMED = {"X-Conversation-Id": "c-1"}
STREAM = BODY | {"stream": True}
END = [ChoiceFinished(FinishReason.EOS), Finished(usage=USAGE, timings=TIMINGS)]


async def kept(site: Site, conversation: str = "c-1", **query: str) -> httpx.Response:
    return await site.http.get("/v1/stream", params={"conv_id": conversation, **query})


async def test_a_stream_can_be_read_again_from_any_place_on(site: Site) -> None:
    first = await site.post(STREAM, headers=NAMED)
    assert first.headers["x-cache-status"].startswith("off")
    again = await kept(site)
    assert again.content == first.content
    assert again.headers["content-type"] == "text/event-stream"
    for place in ("0", " +7", "7junk", str(len(first.content)), "99999999999999999999"):
        digits = int("".join(c for c in place if c.isdigit()))
        answer = await kept(site, **{"from": place})
        assert answer.content == first.content[digits:]


async def test_without_the_header_nothing_is_kept(site: Site) -> None:
    await site.post(STREAM)
    await site.post(BODY, headers=NAMED)
    assert (await kept(site)).status_code == 404


async def test_a_client_that_leaves_stops_nothing(site: Site, generator: Scripted) -> None:
    gate = asyncio.Event()
    generator.script = [Accepted(3), TextDelta("Hel"), gate, TextDelta("lo"), *END]
    async with site.http.stream(
        "POST", "/v1/chat/completions", json=STREAM, headers=NAMED
    ) as answer:
        async for line in answer.aiter_lines():
            if "Hel" in line:
                break
    reader = asyncio.ensure_future(kept(site))
    await asyncio.sleep(0.05)
    assert not generator.closed.is_set()
    assert not reader.done()
    looked = await site.http.post("/v1/streams/lookup", json={"conversation_ids": ["c-1"]})
    assert [(one["is_done"], one["completed_at"]) for one in looked.json()] == [(False, 0)]
    gate.set()
    text = (await reader).text
    assert '"Hel"' in text
    assert '"lo"' in text
    assert text.endswith("data: [DONE]\n\n")
    assert text.count("data: [DONE]") == 1


async def test_a_new_stream_of_the_same_name_takes_the_place_of_the_old(
    site: Site, generator: Scripted
) -> None:
    generator.script = [Accepted(3), TextDelta("old"), asyncio.Event()]
    old = asyncio.ensure_future(site.post(STREAM, headers=NAMED))
    while generator.yielded < 2:
        await asyncio.sleep(0.01)
    generator.script = [Accepted(3), TextDelta("new"), *END]
    new = await site.post(STREAM, headers=NAMED)
    assert '"new"' in new.text
    assert "[DONE]" not in (await old).text
    assert "the stream was cancelled" in (await old).text
    assert '"old"' not in (await kept(site)).text


async def test_delete_cancels_and_forgets(site: Site, generator: Scripted) -> None:
    generator.script = [Accepted(3), TextDelta("a"), asyncio.Event()]
    running = asyncio.ensure_future(site.post(STREAM, headers=NAMED))
    while generator.yielded < 2:
        await asyncio.sleep(0.01)
    deleted = await site.http.delete("/v1/stream", params={"conv_id": "c-1"})
    assert (deleted.status_code, deleted.content) == (204, b"")
    await asyncio.wait_for(generator.closed.wait(), 2)
    assert "[DONE]" not in (await running).text
    assert "the stream was cancelled" in (await running).text
    assert (await kept(site)).status_code == 404
    again = await site.http.delete("/v1/stream", params={"conv_id": "c-1"})
    assert again.status_code == 204


async def test_what_refuses_the_request_is_an_answer_and_leaves_nothing(
    site: Site, generator: Scripted
) -> None:
    refused = await site.post(STREAM | {"top_p": "wide"}, headers=NAMED)
    assert refused.status_code == 400
    generator.script = [RuntimeError("boom")]
    failed = await site.post(STREAM, headers=NAMED)
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
    assert (await kept(site)).status_code == 404


async def test_a_failure_in_mid_stream_is_kept_too(site: Site, generator: Scripted) -> None:
    generator.script = [Accepted(3), TextDelta("a"), RuntimeError("boom")]
    first = await site.post(STREAM, headers=NAMED)
    assert '"error"' in first.text
    assert "[DONE]" not in first.text
    assert (await kept(site)).content == first.content


async def test_bad_queries_say_what_is_wrong(site: Site) -> None:
    await site.post(STREAM, headers=NAMED)
    for answer, status, words in [
        (await site.http.get("/v1/stream"), 400, "Missing conversation id in path"),
        (await site.http.delete("/v1/stream"), 400, "Missing conversation id in path"),
        (await kept(site, **{"from": "-1"}), 400, "Invalid 'from' offset"),
        (await kept(site, **{"from": "x1"}), 400, "Invalid 'from' offset"),
        (await kept(site, "other"), 404, "Stream not found or expired"),
        (await site.http.post("/v1/streams/lookup", content=b"{"), 400, "not JSON"),
    ]:
        assert answer.status_code == status
        error = answer.json()["error"]
        assert words in error["message"]
        assert error["code"] is None


async def test_lookup_finds_names_and_their_suffixes(site: Site) -> None:
    for name in ("a", "a::1", "ab", "b"):
        await site.post(STREAM, headers={"X-Conversation-Id": name})

    async def looked(body: object) -> list[str]:
        answer = await site.http.post("/v1/streams/lookup", json=body)
        assert answer.status_code == 200
        return sorted(one["conversation_id"] for one in answer.json())

    assert await looked({"conversation_ids": ["a", "zz", 7]}) == ["a", "a::1"]
    for body in ({}, {"conversation_ids": "a"}, [], {"conversation_ids": None}):
        assert await looked(body) == []


async def test_a_stream_belongs_to_the_key_that_made_it(start: Start) -> None:
    site = await start(api_keys=["one", "two"])
    ours = {"Authorization": "Bearer one"}
    theirs = {"Authorization": "Bearer two"}
    await site.post(STREAM, headers=NAMED | ours)
    query = {"params": {"conv_id": "c-1"}}
    assert (await site.http.get("/v1/stream", headers=theirs, **query)).status_code == 404
    body = {"conversation_ids": ["c-1"]}
    seen = await site.http.post("/v1/streams/lookup", json=body, headers=theirs)
    assert seen.json() == []
    await site.http.delete("/v1/stream", headers=theirs, **query)
    await site.post(STREAM, headers=NAMED | theirs)
    again = await site.http.get("/v1/stream", headers={"X-Api-Key": "one"}, **query)
    assert again.status_code == 200
    assert (await site.http.get("/v1/stream", headers=theirs, **query)).content != again.content


async def test_old_bytes_are_dropped_from_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable, "BUFFER_BYTES", 10)
    session = StreamSession("c")
    behind = session.read(0)
    session.write(b"abcdefgh")
    assert await anext(behind) == b"abcdefgh"
    session.write(b"ijklmnopqrstuvwxyz")
    assert session.total_bytes == 26
    assert [data async for data in behind] == []
    with pytest.raises(Exception, match="Stream offset lost, please restart"):
        session.check(15)
    session.check(16)
    reader = session.read(16)
    assert await anext(reader) == b"qrstuvwxyz"


async def test_finished_streams_are_forgotten_by_age_and_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resumable, "FINISHED", 2)
    sessions = StreamSessions()

    async def nothing() -> None:
        pass

    for name in "abc":
        sessions.open("", name).start(nothing())
        await asyncio.sleep(0.01)
    running = sessions.open("", "d")
    running.start(asyncio.sleep(60))
    sessions.sweep()
    assert sessions.find("", "a") is None
    assert None not in [sessions.find("", name) for name in "bcd"]
    monkeypatch.setattr(resumable, "KEPT_S", 0.0)
    assert sessions.find("", "c") is None
    sessions.sweep()
    assert sessions.find("", "d") is running
    sessions.close()
    assert sessions.find("", "d") is None
