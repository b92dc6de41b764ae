"""Many clients, half of which leave in the middle: no slot, no memory stays taken."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.whole.program import Program, serve_checkpoint
from tests.whole.streaming import Stream

pytestmark = [pytest.mark.whole, pytest.mark.slow]

THREADS = 8
HALF = 100
GROWTH = 1.05


@pytest.fixture
def busy(tiny: Path) -> Iterator[Program]:
    """A server of its own: its memory is looked at."""
    with Program(*serve_checkpoint(tiny)) as program:
        yield program


def one_request(program: Program, number: int) -> None:
    """Odd ones want a long answer and leave after its first words."""
    leaves = number % 2 == 1
    with Stream(program.url, f"request {number}", max_tokens=400 if leaves else 40) as stream:
        if leaves:
            stream.pieces(1)
            return
        ended = stream.rest()
        assert ended.is_done
        assert ended.reason == "length"


def run(program: Program, numbers: range) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: one_request(program, number), numbers))


def resident_bytes(program: Program) -> dict[str, int]:
    health = program.await_health(status="ok", batch__active_sequences=0, batch__queue_depth=0)
    pids = {"front": health["front"]["pid"], "worker": health["worker"]["pid"]}
    return {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}


def test_two_hundred_requests_leave_no_row_and_no_memory_behind(busy: Program) -> None:
    run(busy, range(HALF))
    before = resident_bytes(busy)
    run(busy, range(HALF, 2 * HALF))
    after = resident_bytes(busy)
    for name, size in after.items():
        assert size < before[name] * GROWTH, f"{name}: {before[name]} -> {size} bytes"
    observed = busy.health()["observability"]
    assert observed["sequences_started"] == 2 * HALF
    assert HALF <= observed["sequences_completed"] < 2 * HALF
    assert busy.health()["worker"]["restarts"] == 0
