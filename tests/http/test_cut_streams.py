"""A client that goes at any event of its stream leaves nothing behind: no row, no task, no half of
an answer. What has ended is kept whole, whether its client has heard of the end or not."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlxcel.core.events import (
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from tests.http.cutter import NAME, NAMED, RESPONSES, ROUTES, Cutter, alike, cutter, data_of
from tests.http.cutting import WAYS, Client, Held, busy, deps_of, settled, soon
from tests.http.site import TIMINGS, USAGE, Site, Start

pytestmark = pytest.mark.asyncio

WORDS_ONLY = ("completions", "llama")


def ending(reason: FinishReason) -> list[Event]:
    return [ChoiceFinished(reason), Finished(usage=USAGE, timings=TIMINGS)]


def call(index: int) -> ToolCallDelta:
    return ToolCallDelta(index=index, call_id=f"call_{index:016x}", name="f", arguments='{"a":1}')


TEXT: list[Event] = [TextDelta("Hel"), TextDelta("lo")]
THOUGHT: list[Event] = [ReasoningDelta("I "), ReasoningDelta("see.")]
CALLS = [*THOUGHT, *TEXT, call(0), call(1), *ending(FinishReason.TOOL_CALLS)]
LONG = TextDelta("x" * 8_000_000)
"""More than a system takes for a client that does not read."""
PLAIN = [*TEXT, *ending(FinishReason.EOS)]
LIMITED = [*TEXT, *ending(FinishReason.LENGTH)]
CASES = [
    *(pytest.param(route, CALLS, id=route) for route in ROUTES if route not in WORDS_ONLY),
    *(pytest.param(route, PLAIN, id=route) for route in WORDS_ONLY),
    pytest.param("conversation", LIMITED, id="cut-by-limit"),
]


@pytest.fixture
def generator() -> Held:
    return Held()


STORE: dict[str, Any] = {"max_entries": 999, "max_bytes": 99_999_999, "ttl_secs": 0}


@pytest_asyncio.fixture
async def site(start: Start) -> Site:
    return await started(start, None)


async def started(start: Start, file: Path | None, **more: Any) -> Site:
    """Its client is connected, so that its connection is among what was there before."""
    responses = STORE | {"file": None if file is None else str(file)}
    site = await start(responses_store=responses, conversation_store=STORE, **more)
    await site.http.get("/health")
    return site


@pytest.fixture(autouse=True)
def _nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    told = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert not [record for record in told if record.levelname in ("WARNING", "ERROR", "CRITICAL")]


@pytest.mark.parametrize(("route", "said"), CASES)
async def test_a_cut_at_any_event_leaves_nothing(site: Site, route: str, said: list[Event]) -> None:
    cuts = await cutter(site, route, said)
    for frames in range(cuts.whole.frames + 1):
        for way in WAYS:
            await cuts.cut(frames, way)
        await cuts.check_found(is_kept=cuts.has_ended(frames))
    # And the next one is answered.
    await cuts.begin()


async def test_nor_does_it_in_a_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "kept.sqlite"
    site = await started(start, file)
    cuts = await cutter(site, "conversation", CALLS, file)
    for frames in range(cuts.whole.frames + 1):
        await cuts.cut(frames, "rst")
        await cuts.check_found(is_kept=cuts.has_ended(frames))
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_cut_between_the_headers_and_the_first_event(start: Start, route: str) -> None:
    """A ping has opened the stream."""
    site = await started(start, None, sse_ping_interval=0.01)
    cuts = await cutter(site, route, PLAIN)
    for way in WAYS:
        known = await cuts.kept()
        cuts.generator.allow(0)
        client = await Client.ask(site.address, cuts.asked)
        await client.read(1)
        assert client.raw.endswith(b"\n:\n\n")
        WAYS[way](client.sock)
        await settled(site, cuts.idle)
        await cuts.check(known, is_kept=False)
        client.sock.close()


@pytest.mark.slow
@pytest.mark.parametrize("route", ["conversation", "messages", "chat", "completions"])
async def test_a_cut_while_the_answer_goes_on_is_all_or_nothing(site: Site, route: str) -> None:
    """The server learns of it somewhere between two of its steps."""
    cuts = await cutter(site, route, CALLS if route not in WORDS_ONLY else PLAIN)
    kept_ones = set()
    for turns in range(24):
        for way in WAYS:
            known = await cuts.kept()
            client = await cuts.read(turns % 3)
            cuts.generator.release()
            for _ in range(turns):
                await asyncio.sleep(0)
            WAYS[way](client.sock)
            await settled(site, cuts.idle)
            is_kept = cuts.id in (await cuts.kept())[0]
            await cuts.check(known, is_kept=is_kept)
            kept_ones.add(is_kept)
            client.sock.close()
    assert route != "conversation" or kept_ones == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("route", ["conversation", "messages", "chat", "llama"])
async def test_a_cut_of_a_stream_that_waits_for_its_reader(
    site: Site, route: str, way: str
) -> None:
    cuts = Cutter(site, ROUTES[route], [LONG, *PLAIN], None)
    known = await cuts.kept()
    cuts.generator.release()
    client = await Client.ask(site.address, cuts.asked)
    # It has more to say, and cannot.
    await cuts.generator.waits()
    WAYS[way](client.sock)
    if way == "half":
        # Whoever still listens is waited for, and told nothing new.
        await client.rest()
        assert client.frames < len(cuts.generator.events)
        client.sock.close()
    await settled(site, cuts.idle)
    await cuts.check(known, is_kept=False)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fin", "rst"])
async def test_an_end_that_waits_for_its_reader_is_kept_when_that_goes(
    site: Site, way: str
) -> None:
    """It is kept before anyone can know of it."""
    cuts = Cutter(site, ROUTES["conversation"], [LONG, *ending(FinishReason.EOS)], None)
    cuts.generator.release()
    client = await Client.ask(site.address, cuts.asked)
    await cuts.generator.waits()
    WAYS[way](client.sock)
    await settled(site, cuts.idle)
    shown = (await site.http.get(f"{RESPONSES}/{cuts.id}")).json()
    assert (shown["status"], shown["output_text"]) == ("completed", LONG.text)
    assert set((await cuts.kept())[1]) == {"c"}


@pytest.mark.parametrize("route", ["conversation", "messages", "chat", "llama"])
async def test_a_stream_with_a_name_goes_on_without_its_reader(site: Site, route: str) -> None:
    cuts = await cutter(site, route, PLAIN, headers=NAME)
    told = data_of(cuts.whole.raw)
    ways = cycle(WAYS)
    for frames in range(cuts.whole.frames + 1):
        known = await cuts.kept()
        client = await cuts.read(frames)
        way = next(ways)
        WAYS[way](client.sock)
        await soon(lambda: busy(site)["connections"] == cuts.idle["connections"])
        session = deps_of(site).streams.find("", "n")
        assert session is not None
        assert not session.is_done
        assert cuts.generator.running == 1
        cuts.generator.release()
        await soon(partial(getattr, session, "is_done"))
        await cuts.check(known, is_kept=True)
        again = (await site.http.get("/v1/stream", **NAMED)).content
        assert alike(data_of(again)) == alike(told)
        assert data_of(again)[:frames] == data_of(client.raw)
        await cuts.forget()
        await settled(site, cuts.idle)
        client.sock.close()


@pytest.mark.parametrize("stop", ["delete", "cancel"])
async def test_one_that_is_then_stopped_leaves_nothing(site: Site, stop: str) -> None:
    cuts = await cutter(site, "conversation", PLAIN, headers=NAME)
    for frames in range(cuts.whole.frames + 1):
        known = await cuts.kept()
        client = await cuts.read(frames)
        client.sock.close()
        has_ended = cuts.has_ended(frames)
        if stop == "cancel" and not has_ended:
            reply = await site.http.post(f"{RESPONSES}/{cuts.id}/cancel")
            assert reply.json()["status"] == "cancelled"
            await soon(lambda: not cuts.generator.running)
        await cuts.forget()
        await settled(site, cuts.idle)
        await cuts.check(known, is_kept=has_ended)


DELTAS = st.lists(
    st.one_of(
        st.sampled_from(["a", "\n\n", "data: [DONE]\n\n", "é🎭", "x" * 5000]).map(TextDelta),
        st.sampled_from(["hm", "\n"]).map(ReasoningDelta),
        st.integers(0, 3).map(call),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(
    route=st.sampled_from(["responses", "conversation", "previous", "messages", "chat"]),
    deltas=DELTAS,
    reason=st.sampled_from([FinishReason.EOS, FinishReason.LENGTH, FinishReason.TOOL_CALLS]),
    way=st.sampled_from(list(WAYS)),
    data=st.data(),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_whatever_is_said_and_wherever_it_is_cut(
    site: Site,
    route: str,
    deltas: list[Event],
    reason: FinishReason,
    way: str,
    data: st.DataObject,
) -> None:
    cuts = await cutter(site, route, [*deltas, *ending(reason)])
    frames = data.draw(st.integers(0, cuts.whole.frames))
    await cuts.cut(frames, way)
    await cuts.check_found(is_kept=cuts.has_ended(frames))
