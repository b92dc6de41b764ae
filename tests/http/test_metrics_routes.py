"""GET /metrics over a real server, with a real client of a worker that is played here."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from mlxcel.core.cache import Reject
from mlxcel.core.errors import NotImplementedHere, StartupError
from mlxcel.core.events import Accepted, Failed, TextDelta
from mlxcel.core.status import State, WorkerStats, WorkerStatus
from mlxcel.engine.cache.counters import (
    Counters,
    PoolNumbers,
    StatsConfig,
    StoreNumbers,
    stats_body,
)
from mlxcel.generation.cache_control import CacheControl
from mlxcel.http.metrics_port import bind_metrics
from mlxcel.http.options import read_options
from mlxcel.http.server import HttpServer
from mlxcel.link.client import WorkerClient
from mlxcel.link.messages import Ask, Frame, Reply, ToWorker
from mlxcel.metrics import scrape
from tests.http.site import (
    BODY,
    INFO,
    Scripted,
    Site,
    Start,
    eventually,
    server_options,
)
from tests.metrics.text import KINDS, LABELS, OURS, kinds, values

pytestmark = pytest.mark.asyncio
PATH = "/metrics"
ON = {"routes": {"metrics": True}}
STATS = WorkerStats(
    active=3,
    waiting=2,
    slots=4,
    started=9,
    completed=7,
    prompt_tokens=100,
    decode_tokens=50,
    decode_steps=20,
    prefill_chunks=11,
    lookahead_steps=12,
    mixed_steps=5,
    prefill_grants=6,
    preemptions=1,
    language_steps=13,
    language_suppressed=14,
    language_fragments=15,
    decode_rows=45,
    batch_sizes=(5, 5, 9, 0, 0, 0, 0, 0, 1),
    longest=77,
)
COUNTED = {
    "llamacpp:requests_processing": 3,
    "llamacpp:requests_deferred": 2,
    "llamacpp:n_decode_total": 20,
    "llamacpp:n_tokens_max": 77,
    "llamacpp:n_busy_slots_per_decode": 2.25,
    "mlxcel_slots_total": 4,
    "mlxcel_slots_available": 1,
    "mlxcel_queue_depth": 2,
    "mlxcel_batch_current_size": 3,
    "mlxcel_batch_sequences_started": 9,
    "mlxcel_batch_sequences_completed": 7,
    "mlxcel_batch_prefill_tokens_total": 100,
    "mlxcel_batch_decode_tokens_total": 50,
    "mlxcel_batch_decode_steps_total": 20,
    "mlxcel_batch_decode_lookahead_steps_total": 12,
    "mlxcel_batch_prefill_chunks_total": 11,
    "mlxcel_batch_mixed_steps_total": 5,
    "mlxcel_batch_prefill_grants_total": 6,
    "mlxcel_batch_preemptions_total": 1,
    "mlxcel_lang_bias_applied_total": 13,
    "mlxcel_lang_bias_tokens_suppressed_total": 14,
    "mlxcel_lang_bias_byte_fragment_suppressions_total": 15,
    "mlxcel_batch_size_sum": 45,
    "mlxcel_batch_size_count": 20,
    "mlxcel_batch_size_bucket{le=1}": 5,
    "mlxcel_batch_size_bucket{le=2}": 10,
    "mlxcel_batch_size_bucket{le=4}": 19,
    "mlxcel_batch_size_bucket{le=128}": 19,
    "mlxcel_batch_size_bucket{le=+Inf}": 20,
    "mlxcel_worker_up{worker=chat}": 1,
    "mlxcel_worker_restarts_total{worker=chat}": 0,
}
CACHED = {
    "mlxcel_cache_pool_active": 3,
    "mlxcel_cache_pool_paged_block_size": 32,
    "mlxcel_cache_pool_paged_blocks_live": 8,
    "mlxcel_cache_pool_paged_blocks_free": 2,
    "mlxcel_cache_pool_paged_block_budget": 10,
    "mlxcel_prompt_cache_hits_total": 1,
    "mlxcel_prompt_cache_misses_total": 1,
    "mlxcel_prompt_cache_prefix_tokens_reused_total": 6,
    "mlxcel_prompt_cache_evictions_total{reason=lru}": 3,
    "mlxcel_prompt_cache_evictions_total{reason=ttl}": 4,
    "mlxcel_prompt_cache_evictions_total{reason=capacity}": 0,
    "mlxcel_prompt_cache_bytes": 1000,
    "mlxcel_prompt_cache_entries": 4,
    "mlxcel_prompt_cache_snapshot_hits_total": 1,
    "mlxcel_prompt_cache_snapshot_misses_total": 0,
    "mlxcel_prompt_cache_snapshot_tokens_reused_total": 5,
    "mlxcel_prompt_cache_snapshot_evictions_total{reason=lru}": 1,
    "mlxcel_prompt_cache_snapshot_evictions_total{reason=ttl}": 2,
    "mlxcel_prompt_cache_reject_total{reason=empty_set}": 1,
    "mlxcel_prompt_cache_reject_total{reason=oversized}": 0,
}


def busy_cache() -> Counters:
    counters = Counters(
        evictions_lru=3, evictions_ttl=4, snapshot_evictions_lru=1, snapshot_evictions_ttl=2
    )
    counters.looked_up(10, 6)
    counters.looked_up(10, 0)
    counters.looked_up_state(10, 5)
    counters.reject(Reject.EMPTY_SET, "r1", 10, 0, 1)
    return counters


class Watched(Scripted):
    """Its worker answers at once, with an error, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.client = WorkerClient("chat", max_queue_depth=1)
        self.cache = CacheControl(self.client)
        self.counters = busy_cache()
        self.pool = PoolNumbers(block_size=32, blocks_live=8, blocks_free=2, block_budget=10)
        self.error = False
        self.is_silent = False
        self.now = STATS
        self.connect()

    def connect(self) -> None:
        self.client.connect(self.take, INFO)
        self.client.deliver(Frame([], self.now, []))

    def take(self, message: ToWorker) -> bool:
        assert isinstance(message, Ask)
        body = stats_body(
            self.counters,
            StatsConfig(enabled=True),
            store=StoreNumbers(entries=4, bytes=1000),
            pool=self.pool,
        )
        error = NotImplementedHere("no cache here").info() if self.error else None
        if not self.is_silent:
            self.client.deliver(
                Frame([], self.now, [Reply(id=message.id, value=body, error=error)])
            )
        return True

    def status(self) -> WorkerStatus:
        return self.client.status()


@pytest.fixture
def generator() -> Watched:
    return Watched()


@pytest_asyncio.fixture
async def watched(start: Start) -> Site:
    return await start(**ON)


async def scraped(site: Site) -> dict[str, float]:
    response = await site.http.get(PATH)
    assert response.status_code == 200
    return values(response.text)


async def test_every_name_of_the_interface_has_its_kind_and_nothing_else_is_there(
    watched: Site,
) -> None:
    response = await watched.http.get(PATH)
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    wanted = {name: kind for kind, names in KINDS.items() for name in names}
    wanted |= {name: kind for kind, names in OURS.items() for name in names}
    assert kinds(response.text) == wanted
    found = values(response.text)
    for name, (label, words) in LABELS.items():
        assert words <= {
            full.split("=")[1][:-1] for full in found if full.startswith(f"{name}{{{label}=")
        }


async def test_llamas_families_come_first(watched: Site) -> None:
    names = list(kinds((await watched.http.get(PATH)).text))
    first = [name.startswith("llamacpp:") for name in names]
    assert first == sorted(first, reverse=True)


async def test_the_start_of_the_server_is_in_the_head(watched: Site) -> None:
    for method in ("GET", "HEAD"):
        response = await watched.http.request(method, PATH)
        started = int(response.headers["Process-Start-Time-Unix"])
        assert time.time() - 60 < started <= time.time()
    assert response.content == b""


async def test_three_requests(watched: Site) -> None:
    for stream in (False, True, False):
        response = await watched.post(BODY | {"stream": stream})
        assert response.status_code == 200
    found = await scraped(watched)
    assert found["mlxcel_requests_total"] == 3
    assert found["mlxcel_prompt_tokens_total"] == 9
    assert found["mlxcel_completion_tokens_total"] == 6
    assert found["mlxcel_generation_time_seconds_total"] == pytest.approx(0.12)
    assert found["mlxcel_request_ttft_ms_sum"] == pytest.approx(33)
    assert found["mlxcel_request_ttft_ms_bucket{le=10}"] == 0
    assert found["mlxcel_request_ttft_ms_bucket{le=25}"] == 3
    assert found["mlxcel_request_decode_tok_s_sum"] == pytest.approx(150)
    assert found["mlxcel_request_queue_ms_count"] == 3
    assert found["llamacpp:prompt_tokens_total"] == 9
    assert found["llamacpp:prompt_seconds_total"] == pytest.approx(0.03)
    assert found["llamacpp:tokens_predicted_total"] == 6
    assert found["llamacpp:tokens_predicted_seconds_total"] == pytest.approx(0.06)
    assert found["llamacpp:prompt_tokens_seconds"] == pytest.approx(300)
    assert found["llamacpp:predicted_tokens_seconds"] == pytest.approx(100)


@pytest.mark.parametrize("path", ["/v1/completions", "/completion"])
async def test_streams_of_the_oldest_routes_are_in_the_times_alone(
    watched: Site, path: str
) -> None:
    for stream, counted, timed in ((True, 0, 1), (False, 1, 2)):
        body = {"model": "tiny", "prompt": "hi", "stream": stream}
        assert (await watched.http.post(path, json=body)).status_code == 200
        found = await scraped(watched)
        assert found["mlxcel_requests_total"] == counted
        assert found["mlxcel_completion_tokens_total"] == 2 * counted
        assert found["mlxcel_request_ttft_ms_count"] == timed
        assert found["llamacpp:tokens_predicted_total"] == 2 * timed


async def test_averages_are_since_the_scrape_before_and_a_look_is_none(watched: Site) -> None:
    await watched.post()
    await watched.http.head(PATH)
    assert (await scraped(watched))["llamacpp:prompt_tokens_seconds"] == pytest.approx(300)
    idle = await scraped(watched)
    assert (idle["llamacpp:prompt_tokens_seconds"], idle["llamacpp:prompt_tokens_total"]) == (0, 3)


async def test_cancelled_and_failed_streams_are_no_answers(
    watched: Site, generator: Watched
) -> None:
    gate = asyncio.Event()
    generator.script = [Accepted(3), TextDelta("Hel"), gate]
    async with watched.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}):
        await eventually(lambda: generator.yielded == 2)
    await asyncio.wait_for(generator.closed.wait(), 5)
    generator.script = [Accepted(3), Failed(NotImplementedHere("no more").info())]
    await watched.post(BODY | {"stream": True})
    found = await scraped(watched)
    assert found["mlxcel_requests_total"] == found["llamacpp:prompt_tokens_total"] == 0
    assert found["mlxcel_requests_cancelled_total"] == 1
    assert found["mlxcel_requests_failed_total"] == 1


async def test_what_the_worker_counts(watched: Site) -> None:
    found = await scraped(watched)
    assert {name: found[name] for name in COUNTED} == COUNTED
    assert {name: found[name] for name in CACHED} == CACHED


async def test_while_the_model_loads(watched: Site, generator: Watched) -> None:
    generator.client.report(state=State.LOADING, model=None)
    found = await scraped(watched)
    assert found["mlxcel_worker_up{worker=chat}"] == 0
    assert found["mlxcel_slots_total"] == found["mlxcel_slots_available"] == 0
    assert found["mlxcel_prompt_cache_entries"] == 0


async def test_without_a_model(start: Start) -> None:
    site = await start(generate=None, **ON)
    found = await scraped(site)
    assert found["mlxcel_slots_total"] == found["mlxcel_requests_total"] == 0


async def test_a_worker_that_does_not_answer_holds_nothing_up(
    watched: Site, generator: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scrape.ASK_S == 1
    monkeypatch.setattr(scrape, "ASK_S", 0.05)
    before = await scraped(watched)
    generator.is_silent = True
    async with asyncio.timeout(0.8):
        scrapes = await asyncio.gather(*(scraped(watched) for _ in range(8)))
    assert all(found["mlxcel_prompt_cache_entries"] == 4 for found in scrapes)
    same = {name for name in before if name.startswith("mlxcel_prompt_cache_")}
    assert all(found[name] == before[name] for found in scrapes for name in same)


async def test_a_worker_that_answers_with_an_error_has_no_cache(
    watched: Site, generator: Watched
) -> None:
    generator.error = True
    found = await scraped(watched)
    assert found["mlxcel_prompt_cache_entries"] == found["mlxcel_prompt_cache_hits_total"] == 0
    assert found["mlxcel_batch_decode_steps_total"] == 20


async def test_a_worker_that_dies_while_it_is_asked(watched: Site, generator: Watched) -> None:
    await scraped(watched)
    generator.is_silent = True
    asking = asyncio.ensure_future(scraped(watched))
    await eventually(lambda: generator.client._asked)
    generator.client.lost("killed by SIGKILL")
    found = await asking
    assert found["mlxcel_prompt_cache_entries"] == found["mlxcel_batch_current_size"] == 0
    assert found["mlxcel_prompt_cache_hits_total"] == 1
    assert found["mlxcel_batch_decode_steps_total"] == 20


async def test_counters_go_on_where_the_worker_before_ended(
    watched: Site, generator: Watched
) -> None:
    await scraped(watched)
    generator.client.lost("killed by SIGKILL")
    generator.client.report(state=State.RESTARTING, restarts=1)
    gone = await scraped(watched)
    assert gone["mlxcel_slots_available"] == gone["mlxcel_batch_current_size"] == 0
    generator.now = WorkerStats(slots=4, decode_steps=1, decode_rows=1, batch_sizes=(1,), longest=5)
    generator.counters = Counters(hits=1, lookups=1, tokens_reused=2, tokens_looked_up=2)
    generator.connect()
    after = await scraped(watched)
    for found, steps, hits in ((gone, 20, 1), (after, 21, 2)):
        assert found["mlxcel_batch_decode_steps_total"] == steps
        assert found["mlxcel_batch_size_count"] == steps
        assert found["mlxcel_prompt_cache_hits_total"] == hits
        assert found["llamacpp:n_tokens_max"] == 77
        assert found["mlxcel_worker_restarts_total{worker=chat}"] == 1
    assert after["mlxcel_slots_available"] == 4


async def test_switched_off_it_says_how_to_switch_it_on(site: Site) -> None:
    response = await site.http.get(PATH)
    assert response.status_code == 501
    error = response.json()["error"]
    assert (error["code"], error["type"]) == (501, "not_supported_error")
    assert "--metrics" in error["message"]


async def test_a_key_is_needed_where_keys_are_set(start: Start) -> None:
    site = await start(api_keys=["k"], **ON)
    assert (await site.http.get(PATH)).status_code == 401
    assert (await site.http.get(PATH, headers={"X-Api-Key": "k"})).status_code == 200


async def test_a_port_of_its_own(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mlxcel.http.metrics_port")
    site = await start(metrics_port=0, api_keys=["k"], api_prefix="/llm")
    (said,) = [text for text in caplog.messages if text.startswith("metrics alone on ")]
    url = "http://" + re.fullmatch(r"metrics alone on (\S+)/llm/metrics", said)[1]  # type: ignore[index]
    keyed: Any = {"headers": {"X-Api-Key": "k"}}
    assert (await site.http.get("/llm/metrics", **keyed)).status_code == 501
    async with httpx.AsyncClient(base_url=url, verify=False) as other:
        assert (await other.get("/llm/metrics")).status_code == 401
        await site.http.post("/llm/v1/chat/completions", json=BODY, **keyed)
        response = await other.get("/llm/metrics", **keyed)
        assert values(response.text)["mlxcel_requests_total"] == 1
        for path in ("/metrics", "/llm/health", "/health", "/llm/v1/models"):
            assert (await other.get(path, **keyed)).status_code == 404, path
    await site.server.stop()
    async with httpx.AsyncClient(base_url=url, verify=False) as other:
        with pytest.raises(httpx.ConnectError):
            await other.get("/llm/metrics", **keyed)


async def test_a_port_that_is_taken_is_said_before_a_model_is_loaded(site: Site) -> None:
    taken = int(site.address.rsplit(":", 1)[1])
    with pytest.raises(StartupError, match=r"observability\.metrics_port: .* in use"):
        HttpServer.preflight(server_options(metrics_port=taken))


async def test_a_port_is_not_given_twice() -> None:
    options = read_options(server_options(port=8080, metrics_port=8080))
    with pytest.raises(StartupError, match=r"metrics_port = 8080 is server\.port as well"):
        bind_metrics(options)


async def test_beside_a_unix_socket_the_port_is_on_loopback(tmp_path: Path) -> None:
    options = read_options(server_options(host=str(tmp_path / "s.sock"), metrics_port=0))
    sock = bind_metrics(options)
    assert sock is not None
    with sock:
        assert sock.getsockname()[0] == "127.0.0.1"
