"""The routes of the prompt cache over a real server, with a real client of a worker."""

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from mlxcel.core.errors import NotImplementedHere
from mlxcel.core.status import State, WorkerStats
from mlxcel.generation.cache_control import CacheControl
from mlxcel.link.client import WorkerClient
from mlxcel.link.messages import Ask, Frame, Question, Reply, ToWorker
from tests.http.site import INFO, Scripted, Site, Start

pytestmark = pytest.mark.asyncio
STATS = "/v1/cache/stats"
RESET = "/v1/cache/reset"
ANSWERS: dict[Question, dict[str, Any]] = {
    Question.CACHE_STATS: {"enabled": True, "hits": 3, "last_reject_reason": None},
    Question.CACHE_RESET: {"cleared": True, "freed_bytes": 7, "freed_entries": 1},
}


class Cached(Scripted):
    """Its worker answers at once, with an error, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.client = WorkerClient("chat", max_queue_depth=1)
        self.cache = CacheControl(self.client)
        self.fails = False
        self.is_silent = False
        self.asked = asyncio.Event()
        self.client.connect(self.take, INFO)

    def take(self, message: ToWorker) -> bool:
        assert isinstance(message, Ask)
        self.asked.set()
        error = NotImplementedHere("no cache here").info() if self.fails else None
        reply = Reply(id=message.id, value=ANSWERS[message.question], error=error)
        if not self.is_silent:
            self.client.deliver(Frame([], WorkerStats(), [reply]))
        return True


@pytest.fixture
def cached() -> Cached:
    return Cached()


@pytest_asyncio.fixture
async def open_site(start: Start, cached: Cached) -> Site:
    return await start(generate=cached)


async def test_stats_are_the_workers(open_site: Site) -> None:
    response = await open_site.http.get(STATS)
    assert (response.status_code, response.json()) == (200, ANSWERS[Question.CACHE_STATS])
    assert (await open_site.http.head(STATS)).status_code == 200


async def test_reset_needs_no_body(open_site: Site) -> None:
    for content in (b"", b"not json"):
        response = await open_site.http.post(RESET, content=content)
        assert (response.status_code, response.json()) == (200, ANSWERS[Question.CACHE_RESET])


@pytest.mark.parametrize(("method", "path"), [("GET", STATS), ("POST", RESET)])
async def test_errors_have_the_usual_envelope(
    open_site: Site, cached: Cached, method: str, path: str
) -> None:
    cached.fails = True
    refused = await open_site.http.request(method, path)
    assert (refused.status_code, refused.json()["error"]["message"]) == (501, "no cache here")
    cached.client.report(state=State.LOADING)
    loading = await open_site.http.request(method, path)
    assert loading.status_code == 503
    error = loading.json()["error"]
    assert (error["type"], error["code"]) == ("unavailable_error", None)
    assert error["message"] == "the chat worker is loading; retry later"


async def test_a_worker_that_dies_meanwhile_is_a_503(open_site: Site, cached: Cached) -> None:
    cached.is_silent = True
    asking = asyncio.ensure_future(open_site.http.get(STATS))
    await asyncio.wait_for(cached.asked.wait(), 5)
    cached.client.lost("killed by SIGKILL")
    response = await asking
    assert response.status_code == 503
    assert "killed by SIGKILL" in response.json()["error"]["message"]


async def test_a_key_is_needed_where_keys_are_set(start: Start, cached: Cached) -> None:
    site = await start(generate=cached, api_keys=["k"])
    for method, path in (("GET", STATS), ("POST", RESET)):
        assert (await site.http.request(method, path)).status_code == 401
        with_key = await site.http.request(method, path, headers={"X-Api-Key": "k"})
        assert with_key.status_code == 200


@pytest.mark.parametrize(("method", "path"), [("POST", STATS), ("GET", RESET)])
async def test_other_methods_are_not_there(open_site: Site, method: str, path: str) -> None:
    assert (await open_site.http.request(method, path)).status_code == 405


async def test_without_a_model_the_routes_say_so(start: Start) -> None:
    site = await start(generate=None)
    assert (await site.http.get(STATS)).status_code == 501
