"""The end of a server: what is open may finish, what is new is refused, nothing stays behind."""

import http.client
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.whole.pids import await_gone, is_gone
from tests.whole.program import Program, chat_body, serve_checkpoint
from tests.whole.streaming import Stream

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

STOPS = [signal.SIGTERM, signal.SIGINT]
SENTENCE = "an open stream gets all of its words in the end"
ENDLESS = "on and on " * 100
AT_ONCE_S = 12.0
"""Well below the 30 s of `server.drain_secs`, with room for a busy machine."""


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Where a program puts its sockets; short, as their names have to be."""
    with tempfile.TemporaryDirectory(prefix="mx", dir="/tmp") as folder:
        yield Path(folder)


def left_in(folder: Path) -> list[Path]:
    """Of ours: mlx keeps a cache of its own there."""
    return list(folder.glob("mlxcel-*"))


@pytest.mark.parametrize("number", STOPS, ids=lambda number: number.name)
def test_open_stream_finishes_and_new_work_is_refused(number: signal.Signals) -> None:
    with Program("model=echo", "engine.delay_ms=40") as program:
        with Stream(program.url, SENTENCE) as stream:
            said = stream.pieces(2)
            program.signal(number)
            draining = program.await_health(status="draining")
            assert draining["batch"]["active_sequences"] == 1
            assert program.get("/health")[0] == 503
            status, refused = program.post("/v1/chat/completions", chat_body("too late"))
            assert status == 503
            assert "draining" in refused["error"]["message"]
            ended = stream.rest()
        assert said + ended.text == SENTENCE
        assert ended.is_done
        assert program.wait(AT_ONCE_S) == 0
        assert "were cut" not in program.text


@pytest.mark.parametrize("number", STOPS, ids=lambda number: number.name)
def test_stream_beyond_the_deadline_is_told_that_it_was_cut(number: signal.Signals) -> None:
    with Program("model=echo", "engine.delay_ms=40", "server.drain_secs=1") as program:
        with Stream(program.url, ENDLESS) as stream:
            stream.pieces(2)
            program.signal(number)
            ended = stream.rest()
        assert ended.error is not None
        assert "shutting down" in ended.error["message"]
        assert ended.error["type"] == "unavailable_error"
        assert not ended.is_done
        assert program.wait(AT_ONCE_S) == 0
        assert "1 requests were cut after" in program.text


def test_second_signal_does_not_wait_for_open_streams() -> None:
    with Program("model=echo", "engine.delay_ms=40") as program:
        with Stream(program.url, ENDLESS, max_tokens=1000) as stream:
            stream.pieces(2)
            program.signal(signal.SIGTERM)
            program.await_health(status="draining")
            program.signal(signal.SIGINT)
            ended = stream.rest()
        assert ended.error is not None
        assert not ended.is_done
        assert program.wait(AT_ONCE_S) == 0
        assert "SIGINT again" in program.text


@pytest.mark.whole
def test_second_signal_does_not_wait_for_a_wedged_worker() -> None:
    wedge = "engine.faults=[{when: wedge, at_token: 1, kind: hang}]"
    with Program("model=echo", wedge, "server.drain_secs=0") as program:
        with Stream(program.url, "wedge") as stream:
            stream.pieces(1)
            worker = program.health()["worker"]["pid"]
            program.signal(signal.SIGTERM)
            assert stream.rest().error is not None
        program.signal(signal.SIGTERM)
        assert program.wait(AT_ONCE_S) == 1
        assert "killing it" in program.text
        assert is_gone(worker)


def test_worker_that_dies_while_draining_costs_its_streams_and_no_more() -> None:
    with Program("model=echo", "engine.delay_ms=40") as program:
        worker = program.health()["worker"]["pid"]
        with Stream(program.url, ENDLESS, max_tokens=1000) as stream:
            stream.pieces(2)
            program.signal(signal.SIGTERM)
            program.await_health(status="draining")
            os.kill(worker, signal.SIGKILL)
            ended = stream.rest()
        assert ended.error is not None
        assert "killed by SIGKILL" in ended.error["message"]
        assert program.wait(AT_ONCE_S) == 0
        assert "Traceback" not in program.text


def test_idle_server_ends_at_once_also_with_a_connection_kept_alive() -> None:
    with Program("model=echo") as program:
        address = urlsplit(program.url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        program.signal(signal.SIGTERM)
        assert program.wait(AT_ONCE_S) == 0
        connection.close()


def test_port_is_free_again_at_once() -> None:
    with Program("model=echo") as first:
        port = urlsplit(first.url).port
        assert first.stop() == 0
    with Program("model=echo", f"server.port={port}") as second:
        assert urlsplit(second.url).port == port


def test_signal_while_loading_ends_the_server_and_its_worker(tiny: Path, sockets: Path) -> None:
    words = serve_checkpoint(tiny)
    with Program(*words, env={"TMPDIR": str(sockets)}, wait="listening") as program:
        worker = program.health()["worker"]["pid"]
        program.signal(signal.SIGTERM)
        assert program.wait(AT_ONCE_S) == 0
        assert "ready on" not in program.text
        assert "Traceback" not in program.text
        assert worker is None or is_gone(worker)
    assert left_in(sockets) == []


def test_nothing_stays_behind_a_server_that_was_stopped(sockets: Path) -> None:
    with Program("model=echo", env={"TMPDIR": str(sockets)}) as program:
        worker = program.health()["worker"]["pid"]
        assert left_in(sockets) != []
        assert program.stop() == 0
        assert is_gone(worker)
    assert left_in(sockets) == []


@pytest.mark.parametrize("model", ["echo", "real"])
def test_worker_ends_when_its_front_is_killed(model: str, tiny: Path, sockets: Path) -> None:
    words = ["model=echo"] if model == "echo" else serve_checkpoint(tiny)
    with Program(*words, env={"TMPDIR": str(sockets)}) as program:
        worker = program.health()["worker"]["pid"]
        program.signal(signal.SIGKILL)
        assert program.wait(AT_ONCE_S) == -signal.SIGKILL
        await_gone(worker)
    assert left_in(sockets) == []
