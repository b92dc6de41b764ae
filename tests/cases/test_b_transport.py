"""Public faults B10 and B12: how a stream ends on the wire, and when nobody reads it."""

import asyncio
import json
import socket
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest
import requests

from tests.cases.asking import CHAT, Streamed, await_active, await_idle, opened
from tests.cases.routes import (
    CHATS,
    MARKED_ROUTES,
    NATIVE,
    ROUTES,
    TEXTS,
    USAGE,
    Route,
    name_of,
)
from tests.whole.program import Program, chat_body

pytestmark = pytest.mark.whole


class Wire:
    """One keep-alive connection, read by hand."""

    def __init__(self, program: Program) -> None:
        address = urlsplit(program.url)
        self._host = address.netloc
        self._socket = socket.create_connection((address.hostname, address.port), timeout=10)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def reset(self) -> None:
        """Closes with a reset instead of an orderly end."""
        linger_zero = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
        self.close()

    def send(
        self,
        body: Any,
        *,
        method: str = "POST",
        path: str = CHAT,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nConnection: keep-alive\r\n{more}"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + data)

    def head(self) -> tuple[int, dict[str, str]]:
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    def chunks(self) -> list[bytes]:
        """The chunks of a body up to the zero chunk and the empty line behind it."""
        found = []
        while (size := int(self._file.readline(), 16)) > 0:
            found.append(self._file.read(size))
            assert self._file.read(2) == b"\r\n"
        assert self._file.readline() == b"\r\n"
        return found

    def body(self, headers: dict[str, str]) -> bytes:
        """In whichever way it was said to come."""
        return self.sized(headers) if "content-length" in headers else b"".join(self.chunks())

    def sized(self, headers: dict[str, str]) -> bytes:
        return self._file.read(int(headers["content-length"]))


@pytest.fixture
def wire(echo: Program) -> Iterator[Wire]:
    connection = Wire(echo)
    yield connection
    connection.close()


ENDINGS = [
    pytest.param("hi", {}, id="stop"),
    pytest.param("long", {"max_tokens": 1}, id="length"),
    pytest.param("ab-cd", {"stop": ["-c"]}, id="stop-string"),
]
OF_A_ROUTE = pytest.mark.parametrize("route", ROUTES, ids=name_of)


def ends_well(route: Route, body: bytes) -> bool:
    """With the last frame of a success, and nothing behind it."""
    *frames, last, nothing = body.decode().split("\n\n")
    assert (len(frames) > 0, nothing) == (True, "")
    return route.is_end(last.split("\n"))


@OF_A_ROUTE
@pytest.mark.parametrize(("text", "fields"), ENDINGS)
def test_b10_a_stream_ends_with_the_zero_chunk(
    echo: Program, wire: Wire, route: Route, text: str, fields: dict[str, Any]
) -> None:
    """B10: the body had no final chunk, so strict clients raised an error.

    https://github.com/jundot/omlx/issues/1267
    """
    for _ in range(3):
        wire.send(route.body(text, stream=True, **fields), path=route.path)
        status, headers = wire.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        assert ends_well(route, b"".join(wire.chunks()))
        wire.send(None, method="GET", path="/health")
        status, headers = wire.head()
        assert (status, json.loads(wire.sized(headers))["status"]) == (200, "ok")


def test_b10_a_stream_that_is_read_again_ends_with_the_zero_chunk(
    echo: Program, wire: Wire
) -> None:
    """B10: as the first time, and so does one that holds nothing more."""
    for place, route in enumerate(ROUTES):
        name = {"X-Conversation-Id": f"b10-{place}"}
        wire.send(route.body("again", stream=True), path=route.path, headers=name)
        assert wire.head()[0] == 200
        first = b"".join(wire.chunks())
        assert ends_well(route, first)
        for start in (0, 10, len(first)):
            wire.send(None, method="GET", path=f"/v1/stream?conv_id=b10-{place}&from={start}")
            status, headers = wire.head()
            assert (status, wire.body(headers)) == (200, first[start:])


@OF_A_ROUTE
def test_b10_the_socket_lives_on_after_a_refused_stream(
    echo: Program, wire: Wire, route: Route
) -> None:
    """B10's kind: no answer leaves bytes on the connection that the next one trips over."""
    refusals: list[Any] = [route.body("hi", stream=True, max_tokens="x"), {"stream": True}, []]
    for refused in refusals:
        wire.send(refused, path=route.path)
        status, headers = wire.head()
        assert status == 400
        assert "error" in json.loads(wire.sized(headers))
    wire.send(route.body("hi", stream=True), path=route.path)
    assert wire.head()[0] == 200
    assert ends_well(route, b"".join(wire.chunks()))


def test_b10_two_requests_sent_at_once_are_answered_in_turn(echo: Program, wire: Wire) -> None:
    """B10's kind: the second is on the socket before the first is answered."""
    for text in ("one", "two"):
        wire.send(chat_body(text, stream=True))
    for text in ("one", "two"):
        assert wire.head()[0] == 200
        payloads = b"".join(wire.chunks()).decode().split("\n\n")[:-2]
        chunks = [json.loads(payload.removeprefix("data: ")) for payload in payloads]
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == text


def _by_httpx(url: str, body: Any) -> bytes:
    with httpx.stream("POST", url, json=body, timeout=10) as response:
        return response.read()


def _by_requests(url: str, body: Any) -> bytes:
    with requests.post(url, json=body, stream=True, timeout=10) as response:
        return b"".join(response.iter_content(None))


def _by_urllib(url: str, body: Any) -> bytes:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        data = response.read()
    assert isinstance(data, bytes)
    return data


def _by_aiohttp(url: str, body: Any) -> bytes:
    async def read() -> bytes:
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
            return await response.read()

    return asyncio.run(asyncio.wait_for(read(), 10))


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(_by_httpx, id="httpx"),
        pytest.param(_by_requests, id="requests"),
        pytest.param(_by_urllib, id="urllib"),
        pytest.param(_by_aiohttp, id="aiohttp"),
    ],
)
@OF_A_ROUTE
def test_b10_clients_read_to_the_end(
    echo: Program, route: Route, read: Callable[[str, Any], bytes]
) -> None:
    """B10: httpx, requests, urllib and aiohttp finish without an exception."""
    body = route.body("hi", stream=True, max_tokens=3)
    assert ends_well(route, read(echo.url + route.path, body))


# B12 runs on the real engine, with answers of 30,000 tokens: minutes, if nobody stops them.

ENDLESS = 30000


def _assert_freed(program: Program) -> None:
    """Free within 1 s, and no token is made after that."""
    counted = await_idle(program, 1.0)["observability"]["decode_tokens"]
    time.sleep(0.3)
    assert program.health()["observability"]["decode_tokens"] == counted


EVERY_ROUTE = pytest.mark.parametrize("route", MARKED_ROUTES, ids=name_of)


@pytest.mark.parametrize(
    ("route", "read_bytes"),
    [
        *(pytest.param(route, 1, id=route.path) for route in MARKED_ROUTES),
        pytest.param(CHATS, 0, id="nothing-read"),
        pytest.param(CHATS, 2000, id="some"),
        pytest.param(TEXTS, 0, id="nothing-read-of-text"),
        pytest.param(NATIVE, 0, id="nothing-read-of-native"),
    ],
)
def test_b12_a_reader_that_leaves_frees_its_slot(
    long_tiny: Program, route: Route, read_bytes: int
) -> None:
    """B12: the worker kept generating for nobody.

    https://github.com/cubist38/mlx-openai-server/issues/269
    """
    body = route.body("b12", stream=True, max_tokens=ENDLESS)
    with opened(long_tiny, body, path=route.path) as response:
        response.read(read_bytes)
        await_active(long_tiny, 1)
        assert [slot["is_processing"] for slot in long_tiny.get("/slots")[1]].count(True) == 1
    _assert_freed(long_tiny)
    assert not any(slot["is_processing"] for slot in long_tiny.get("/slots")[1])


@EVERY_ROUTE
def test_b12_a_client_of_a_plain_answer_that_leaves(long_tiny: Program, route: Route) -> None:
    """B12's kind: there is no write that could fail while the answer is made."""
    wire = Wire(long_tiny)
    wire.send(route.body("b12", max_tokens=ENDLESS), path=route.path)
    await_active(long_tiny, 1)
    wire.close()
    _assert_freed(long_tiny)


@EVERY_ROUTE
def test_b12_a_stream_with_a_name_goes_on_and_is_kept_whole(
    long_tiny: Program, route: Route
) -> None:
    """B12: whoever named a conversation may leave and come back for all of it."""
    fields: dict[str, Any] = {"max_tokens": 150, "cache_prompt": False}
    wire = Wire(long_tiny)
    name = f"b12{route.path.replace('/', '-')}"
    body = route.body("b12", stream=True, **USAGE, **fields)
    wire.send(body, path=route.path, headers={"X-Conversation-Id": name})
    assert wire.head()[0] == 200
    wire.reset()
    reader = Wire(long_tiny)
    reader.send(None, method="GET", path=f"/v1/stream?conv_id={name}")
    status, headers = reader.head()
    assert status == 200
    lines = reader.body(headers).decode().split("\n")
    reader.close()
    seen = route.joined(Streamed(lines=tuple(lines)))
    assert seen.counts[1] == 150
    plain = route.plain(long_tiny, "b12", **fields)
    assert (seen.text, seen.reason) == (plain.text, plain.reason)


def test_b12_a_named_stream_that_is_given_up_frees_its_slot(long_tiny: Program) -> None:
    """B12: DELETE is how its client leaves for good, and a new one of its name ends it too."""
    for place, route in enumerate(MARKED_ROUTES):
        wire = Wire(long_tiny)
        name = {"X-Conversation-Id": "given-up"}
        body = route.body(f"b12 {place}", stream=True, max_tokens=ENDLESS)
        wire.send(body, path=route.path, headers=name)
        await_active(long_tiny, 1)
        wire.close()
        time.sleep(0.05)
        await_active(long_tiny, 1)
        if place % 2:
            wire = Wire(long_tiny)
            short = NATIVE.body("short", stream=True, max_tokens=1)
            wire.send(short, path=NATIVE.path, headers=name)
            assert wire.head()[0] == 200
            assert ends_well(NATIVE, b"".join(wire.chunks()))
            wire.close()
        else:
            assert long_tiny.call("DELETE", "/v1/stream?conv_id=given-up") == (204, None)
        _assert_freed(long_tiny)


def test_b12_a_large_body_does_not_hide_that_its_client_left(long_tiny: Program) -> None:
    """B12's kind: a body that fills the receive buffer pauses the reading of the socket."""
    wire = Wire(long_tiny)
    wire.send(chat_body("b12", max_tokens=ENDLESS) | {"padding": "x" * 300_000})
    await_active(long_tiny, 1)
    wire.close()
    _assert_freed(long_tiny)


def test_b12_a_reader_that_resets_the_connection(long_tiny: Program) -> None:
    """B12's kind: a reset instead of a close."""
    wire = Wire(long_tiny)
    wire.send(chat_body("b12", stream=True, max_tokens=ENDLESS))
    await_active(long_tiny, 1)
    wire.reset()
    _assert_freed(long_tiny)


def test_b12_clients_that_leave_the_queue(long_tiny: Program) -> None:
    """B12's kind: those that still wait are forgotten too, and those that run are not touched."""
    slots = long_tiny.health()["batch"]["max_batch_size"]
    wires = [Wire(long_tiny) for _ in range(slots + 3)]
    for wire in wires[:slots]:
        wire.send(chat_body("runs", stream=True, max_tokens=ENDLESS))
    await_active(long_tiny, slots)
    for wire in wires[slots:]:
        wire.send(chat_body("waits", stream=True, max_tokens=ENDLESS))
    await_active(long_tiny, slots, waiting=3)
    for wire in wires[slots:]:
        wire.close()
    await_active(long_tiny, slots, waiting=0)
    for wire in wires[:slots]:
        wire.close()
    _assert_freed(long_tiny)


def test_b12_many_leave_at_once(long_tiny: Program) -> None:
    """B12's kind: 24 clients that go away at different moments leave nothing behind."""

    def leave(after_bytes: int) -> None:
        body = chat_body(f"n{after_bytes}", stream=True, max_tokens=ENDLESS)
        with opened(long_tiny, body) as response:
            assert len(response.read(after_bytes)) == after_bytes

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(0, 4800, 200)))
    _assert_freed(long_tiny)
