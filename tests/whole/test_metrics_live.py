"""What a running server counts: over requests, under load, and after its worker was killed."""

import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from time import monotonic

import pytest

from tests.metrics.text import kinds, values
from tests.whole.program import Program, chat_body
from tests.whole.streaming import Stream

pytestmark = pytest.mark.whole

ALONE = re.compile(r"metrics alone on (\S+)")
BOUND_S = 2.0
"""A scrape asks the worker for a second at most."""


@pytest.fixture(scope="module")
def counting() -> Iterator[Program]:
    """Scraped from its first moment on."""
    words = ("model=echo", "--metrics", "--metrics-port", "0", "engine.delay_ms=1")
    with Program(*words, wait="listening") as program:
        assert set(scrape(program)) >= {"mlxcel_slots_available", "mlxcel_requests_total"}
        program.await_health(status="ok")
        yield program


def scrape(program: Program, url: str | None = None) -> dict[str, float]:
    began = monotonic()
    with urllib.request.urlopen(url or program.url + "/metrics", timeout=10) as response:
        text = response.read().decode()
    assert monotonic() - began < BOUND_S
    assert len(kinds(text)) > 60
    return values(text)


def grown(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return after[name] - before[name]


def counters(found: dict[str, float]) -> dict[str, float]:
    """Those that may only grow."""
    parts = ("_total", "_bucket", "_sum", "_count", "_started", "_completed")
    names = [name for name in found if name.split("{")[0].endswith(parts)]
    return {name: found[name] for name in names if not name.startswith("mlxcel_slots_")}


def test_three_requests_are_three(counting: Program) -> None:
    before = scrape(counting)
    said = sum(
        counting.chat(text, max_tokens=4)["usage"]["completion_tokens"] for text in ("one", "two")
    )
    with Stream(counting.url, "three", max_tokens=4) as stream:
        assert stream.rest().is_done
    after = scrape(counting)
    assert grown(before, after, "mlxcel_requests_total") == 3
    assert grown(before, after, "mlxcel_completion_tokens_total") == said + 4
    assert grown(before, after, "mlxcel_request_ttft_ms_count") == 3
    assert grown(before, after, "mlxcel_batch_sequences_completed") == 3
    assert grown(before, after, "mlxcel_batch_decode_tokens_total") == said + 4
    assert grown(before, after, "mlxcel_generation_time_seconds_total") > 0
    assert grown(before, after, "llamacpp:prompt_tokens_total") > 0
    assert after["llamacpp:predicted_tokens_seconds"] > 0
    assert after["mlxcel_slots_available"] == after["mlxcel_slots_total"] > 0


def test_the_port_of_its_own_says_the_same_and_nothing_else(counting: Program) -> None:
    url = "http://" + counting.await_log(ALONE).group(1)
    here, there = counters(scrape(counting)), counters(scrape(counting, url))
    assert here == there
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("/metrics", "/health"), timeout=10)


def test_a_stream_that_is_left_is_no_answer(counting: Program) -> None:
    before = scrape(counting)
    with Stream(counting.url, "a long message " * 40, max_tokens=5000) as stream:
        stream.pieces(2)
    counting.await_health(batch__active_sequences=0)
    after = scrape(counting)
    assert grown(before, after, "mlxcel_requests_total") == 0
    assert grown(before, after, "mlxcel_requests_cancelled_total") == 1


def test_under_load_a_scrape_is_quick_and_counters_only_grow(counting: Program) -> None:
    before = scrape(counting)
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(counting.chat, f"number {i}", max_tokens=20) for i in range(80)]
        scrapes = [before]
        while not all(one.done() for one in running):
            scrapes.append(scrape(counting))
        for one in running:
            one.result()
    scrapes.append(scrape(counting))
    assert len(scrapes) > 3
    for earlier, later in pairwise(scrapes):
        fell = {name for name, value in counters(earlier).items() if later[name] < value}
        assert not fell
    assert grown(before, scrapes[-1], "mlxcel_requests_total") == 80
    rows = grown(before, scrapes[-1], "mlxcel_batch_size_sum")
    assert rows > grown(before, scrapes[-1], "mlxcel_batch_size_count") > 0


def test_counters_outlive_the_worker(counting: Program) -> None:
    before = scrape(counting)
    pid = counting.health()["worker"]["pid"]
    os.kill(pid, signal.SIGKILL)
    counting.await_health(status="restarting")
    gone = scrape(counting)
    counting.await_health(status="ok")
    status, _ = counting.post("/v1/chat/completions", chat_body("hello", max_tokens=4))
    assert status == 200
    after = scrape(counting)
    for later in (gone, after):
        fell = {name for name, value in counters(before).items() if later[name] < value}
        assert not fell
    assert gone["mlxcel_worker_up{worker=chat}"] == gone["mlxcel_slots_available"] == 0
    assert grown(before, after, "mlxcel_worker_restarts_total{worker=chat}") == 1
    assert grown(before, after, "mlxcel_batch_decode_tokens_total") == 4
    assert after["mlxcel_worker_up{worker=chat}"] == 1
