"""Public fault B14: a stream that is silent for long, behind a proxy that does not wait."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import OpenAI

from tests.cases.asking import Streamed, await_active, opened, stream
from tests.cases.routes import INFILL, MARKED_ROUTES, NATIVE, USAGE, Route
from tests.whole.program import Program, chat_body, text_of

pytestmark = pytest.mark.whole

PING_S = 1
READ_TIMEOUT_S = 2.4
SILENCE_S = 3.4
"""Longer than the proxy waits."""


@dataclass(kw_only=True)
class Proxy:
    """A TCP proxy that drops a connection whose server says nothing for READ_TIMEOUT_S."""

    target: tuple[str, int]
    cut: int = 0
    arrivals: list[float] = field(default_factory=list)
    """When bytes of the server came, over all connections."""

    @contextmanager
    def listening(self) -> Iterator["Proxy"]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.url = f"http://127.0.0.1:{server.getsockname()[1]}"
            threading.Thread(target=self._accept, args=(server,), daemon=True).start()
            yield self

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self.target) as upstream:
            threading.Thread(target=_forward, args=(client, upstream), daemon=True).start()
            upstream.settimeout(READ_TIMEOUT_S)
            try:
                while data := upstream.recv(65536):
                    self.arrivals.append(time.monotonic())
                    client.sendall(data)
            except TimeoutError:
                self.cut += 1
            except OSError:
                pass


def _forward(client: socket.socket, upstream: socket.socket) -> None:
    with suppress(OSError):
        while data := client.recv(65536):
            upstream.sendall(data)
        upstream.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def pinging(long_folder: Path) -> Iterator[Program]:
    """One slot of the real engine, and a comment after each second of silence."""
    words = ("--sse-ping-interval", str(PING_S), "--parallel", "1")
    with Program("serve", "--model", str(long_folder), *words) as program:
        yield program


@pytest.fixture
def proxy(pinging: Program) -> Iterator[Proxy]:
    address = urlsplit(pinging.url)
    assert address.hostname is not None
    assert address.port is not None
    with Proxy(target=(address.hostname, address.port)).listening() as proxy:
        yield proxy


@contextmanager
def frozen_worker(program: Program) -> Iterator[None]:
    """A worker in the middle of something that takes long: no step, no event, no heartbeat."""
    pid = program.health()["worker"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Behind(Program):
    """The same program, asked through a proxy."""

    def __init__(self, url: str) -> None:
        self.url = url


def _sdk_texts(url: str, text: str) -> list[str | None]:
    """What the OpenAI SDK sees, chunk by chunk."""
    client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=30)
    chunks = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": text}],
        stream=True,
        temperature=0,
        max_tokens=8,
    )
    return [chunk.choices[0].delta.content for chunk in chunks]


def _assert_pinged(streamed: Streamed) -> None:
    assert streamed.is_done
    assert len(streamed.comments) >= int(SILENCE_S / PING_S) - 1
    assert set(streamed.comments) == {":"}


def test_b14_queued_and_running_streams_are_kept_alive(pinging: Program, proxy: Proxy) -> None:
    """B14: proxies cut connections that stay silent during long prefill.

    https://github.com/vllm-project/vllm/issues/47647

    One stream runs and two wait behind it; then the worker does not get on for longer than
    the proxy waits.
    """
    alone = {text: text_of(pinging.chat(text, max_tokens=8)) for text in ("raw", "sdk")}
    behind = Behind(proxy.url)
    with ThreadPoolExecutor(2) as pool:
        with opened(pinging, chat_body("first", stream=True, max_tokens=30000)) as running:
            running.read(1)
            raw = pool.submit(stream, behind, chat_body("raw", max_tokens=8))
            sdk = pool.submit(_sdk_texts, proxy.url, "sdk")
            await_active(pinging, 1, waiting=2)
            with frozen_worker(pinging):
                time.sleep(SILENCE_S)
        _assert_pinged(raw.result(20))
        assert raw.result().text == alone["raw"]
        assert "".join(text or "" for text in sdk.result(20)) == alone["sdk"]
    assert proxy.cut == 0


def test_b14_headers_come_before_the_first_token(pinging: Program, proxy: Proxy) -> None:
    """B14: status and headers arrive while the request still waits for its slot."""
    with opened(pinging, chat_body("first", stream=True, max_tokens=30000)) as running:
        running.read(1)
        waiting = Behind(proxy.url)
        with opened(waiting, chat_body("waits", stream=True, max_tokens=2)) as response:
            assert response.status == 200
            assert pinging.health()["batch"]["queue_depth"] == 1


def test_b14_pings_go_by_the_clock(pinging: Program, proxy: Proxy) -> None:
    """B14: at least one line per interval while nothing happens in mid-stream."""
    proxied = Behind(proxy.url)
    with opened(proxied, chat_body("clock", stream=True, max_tokens=30000)) as response:
        response.read(1)
        with frozen_worker(pinging):
            began = time.monotonic()
            time.sleep(SILENCE_S)
            ended = time.monotonic()
        pings = [at for at in proxy.arrivals if began + 0.2 < at < ended]
    assert int(SILENCE_S / PING_S) - 1 <= len(pings) <= int(SILENCE_S / PING_S) + 1
    assert proxy.cut == 0


def test_b14_a_stream_that_talks_gets_no_comment(pinging: Program) -> None:
    """B14: comments stand for silence only."""
    assert stream(pinging, chat_body("talks", max_tokens=50)).comments == []


def test_b14_every_route_is_kept_alive(pinging: Program, proxy: Proxy) -> None:
    """B14: each at the server's pace, and a native one at the pace it asked for."""
    asked: list[tuple[Route, dict[str, Any], range]] = [
        *((route, {}, range(2, 5)) for route in MARKED_ROUTES),
        (NATIVE, {"sse_ping_interval": 2}, range(1, 3)),
        (NATIVE, {"sse_ping_interval": 600}, range(1)),
        (NATIVE, {"sse_ping_interval": -1}, range(1)),
    ]
    behind = Behind(proxy.url)

    def read(place: int) -> Streamed:
        route, fields, _ = asked[place]
        # Silence that was asked for is not for proxies.
        program = pinging if fields else behind
        body = route.body("a", max_tokens=4, **USAGE, **fields)
        return stream(program, body, path=route.path)

    with ThreadPoolExecutor(len(asked)) as pool:
        with opened(pinging, chat_body("first", stream=True, max_tokens=30000)) as running:
            running.read(1)
            answers = [pool.submit(read, place) for place in range(len(asked))]
            await_active(pinging, 1, waiting=len(asked))
            with frozen_worker(pinging):
                time.sleep(3.5 * PING_S)
        for (route, _, pings), answer in zip(asked, answers, strict=True):
            streamed = answer.result(20)
            assert route.joined(streamed).counts[1] == 4
            assert len(streamed.comments) in pings, route.path
    assert proxy.cut == 0


def test_b14_a_native_stream_at_its_own_pace(long_tiny: Program) -> None:
    """B14: a server that would be silent for long says something when it is asked to."""
    with ThreadPoolExecutor(2) as pool, frozen_worker(long_tiny):
        answers = [
            pool.submit(stream, long_tiny, INFILL.body("a", max_tokens=2, **fields), path="/infill")
            for fields in ({"sse_ping_interval": 1}, {})
        ]
        time.sleep(2.5)
    asked, default = (answer.result(20) for answer in answers)
    assert len(asked.comments) in (1, 2)
    assert default.comments == []
    assert asked.chunks[-1]["content"] == default.chunks[-1]["content"]


def test_b14_a_busy_worker_does_not_delay_the_headers(pinging: Program, proxy: Proxy) -> None:
    """B14: headers at once also when the worker is in the middle of a long step, so that
    it cannot even say that it took the request."""
    with ThreadPoolExecutor(1) as pool, frozen_worker(pinging):
        answer = pool.submit(_sdk_texts, proxy.url, "late")
        time.sleep(SILENCE_S)
        assert proxy.cut == 0
        assert proxy.arrivals
    assert "".join(text or "" for text in answer.result(20))


def test_b14_a_worker_that_dies_before_it_took_the_request(pinging: Program) -> None:
    """B14's kind: headers that left early do not hide a failure behind a good end."""
    with ThreadPoolExecutor(1) as pool, frozen_worker(pinging):
        pid = pinging.health()["worker"]["pid"]
        answer = pool.submit(stream, pinging, chat_body("doomed"))
        time.sleep(2.5 * PING_S)
        os.kill(pid, signal.SIGKILL)
        streamed = answer.result(20)
        pinging.await_health(status="ok", worker__restarts=1)
    assert streamed.comments
    assert not streamed.is_done
    assert "error" in streamed.chunks[-1]
