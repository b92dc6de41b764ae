"""A worker that dies or wedges: clients are told, the front lives on, the next request works."""

import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.pids import await_gone
from tests.whole.program import Program, chat_body, serve_checkpoint, text_of
from tests.whole.streaming import Stream

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

LONG = "a long message that takes its time " * 8
SLOW_ECHO = ("model=echo", "engine.delay_ms=30")
PAUSE = "workers.backoff.initial_s=1.5"
"""Long enough to be seen from outside."""


def kill_worker(program: Program) -> int:
    pid = program.health()["worker"]["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    return pid


def fault(kind: str) -> str:
    return f"engine.faults=[{{when: break, at_token: 3, kind: {kind}}}]"


@pytest.fixture(params=["echo", "real"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> Sequence[str]:
    """A server whose answers take seconds; the real model has the window for that."""
    if request.param == "echo":
        return SLOW_ECHO
    return serve_checkpoint(build_tiny_checkpoint(tmp_path / "roomy", window=20_000))


def test_stream_ends_with_an_error_and_the_next_request_succeeds(words: Sequence[str]) -> None:
    with Program(*words, PAUSE) as program:
        before = program.health()
        with Stream(program.url, LONG, max_tokens=15_000) as stream:
            stream.pieces(3)
            killed = kill_worker(program)
            ended = stream.rest()
        assert ended.error is not None
        assert "killed by SIGKILL" in ended.error.pop("message")
        assert ended.error == {"type": "server_error", "param": None, "code": None}
        assert not ended.is_done
        assert ended.reason is None

        restarting = program.await_health(status="restarting")
        assert program.get("/health")[0] == 503
        assert restarting["error"]["message"] == "restarting: killed by SIGKILL"
        assert restarting["front"] == before["front"]

        status, refused = program.post("/v1/chat/completions", chat_body("hello"))
        assert status == 503
        assert refused["error"]["type"] == "unavailable_error"
        assert "restarting" in refused["error"]["message"]

        after = program.await_health(status="ok")
        assert after["front"] == before["front"]
        assert after["worker"]["pid"] not in (killed, None)
        assert after["worker"]["restarts"] == 1
        assert program.chat("hello", max_tokens=4)["usage"]["completion_tokens"] == 4
        assert program.stop() == 0


def test_request_in_one_piece_gets_a_503_with_json() -> None:
    with Program(*SLOW_ECHO) as program, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(program.post, "/v1/chat/completions", chat_body(LONG))
        program.await_health(batch__active_sequences=1)
        kill_worker(program)
        status, body = waiting.result(30)
        assert status == 503
        assert "killed by SIGKILL" in body["error"]["message"]
        assert body["error"]["type"] == "server_error"


def test_every_open_request_is_told_also_those_that_wait_for_a_slot() -> None:
    with Program(*SLOW_ECHO, "scheduler.parallel=1") as program:
        with Stream(program.url, LONG) as running, Stream(program.url, "queued") as queued:
            running.pieces(1)
            program.await_health(batch__queue_depth=1)
            kill_worker(program)
            for ended in (running.rest(), queued.rest()):
                assert ended.error is not None
                assert not ended.is_done
        health = program.await_health(status="ok")
        assert health["batch"]["active_sequences"] == health["batch"]["queue_depth"] == 0


def test_worker_killed_again_and_again_comes_back_each_time() -> None:
    with Program("model=echo", "workers.backoff.initial_s=0.1") as program:
        for restarts in (1, 2, 3):
            await_gone(kill_worker(program))
            program.await_health(status="ok", worker__restarts=restarts)
            assert text_of(program.chat(f"life {restarts}")) == f"life {restarts}"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        pytest.param("crash", "exit code 70", id="crash"),
        pytest.param("hang", "has been running for", id="hang"),
    ],
)
def test_scripted_fault_takes_the_worker_down_and_the_front_replaces_it(
    kind: str, why: str
) -> None:
    watchful = ("workers.tick_timeout_s=0.5", "workers.heartbeat.interval_s=0.1")
    with Program(*SLOW_ECHO, fault(kind), *watchful, PAUSE) as program:
        before = program.health()
        with Stream(program.url, LONG) as bystander, Stream(program.url, "break now") as broken:
            assert broken.pieces(3) == "bre"
            endings = [broken.rest(), bystander.rest()]
        for ended in endings:
            assert ended.error is not None
            assert why in ended.error["message"]
            assert not ended.is_done
        assert why in program.await_health(status="restarting")["worker"]["detail"]
        after = program.await_health(status="ok")
        assert after["front"] == before["front"]
        assert after["worker"]["pid"] != before["worker"]["pid"]
        assert after["worker"]["restarts"] == 1
        assert text_of(program.chat("hello")) == "hello"


def test_scripted_error_fails_its_own_request_alone() -> None:
    with Program(*SLOW_ECHO, fault("error")) as program:
        before = program.health()["worker"]
        with Stream(program.url, "a bystander") as bystander:
            with Stream(program.url, "break now") as broken:
                ended = broken.rest()
            assert ended.text == "bre"
            assert ended.error is not None
            assert "scripted fault at token 3" in ended.error["message"]
            assert not ended.is_done
            assert bystander.rest().text == "a bystander"
        assert program.health()["worker"] == before


@pytest.mark.parametrize("placement", ["thread", "inline"])
def test_crash_of_a_worker_inside_the_front_is_survived_too(placement: str) -> None:
    words = (*SLOW_ECHO, fault("crash"), f"workers={placement}", "workers.backoff.initial_s=0.2")
    with Program(*words) as program:
        with Stream(program.url, "break now") as broken:
            ended = broken.rest()
        assert ended.text == "bre"
        assert ended.error is not None
        assert "scripted crash" in ended.error["message"]
        assert not ended.is_done
        program.await_health(status="ok", worker__restarts=1)
        assert text_of(program.chat("hello")) == "hello"
        assert program.stop() == 0
