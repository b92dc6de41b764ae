"""Requests as bytes and answers as bytes: what the cases send, and what they saw."""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.whole.program import Program, chat_body

CHAT = "/v1/chat/completions"
DONE = "[DONE]"
Chunk = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """A stream that was read to its end. `lines` are all of it, comments included."""

    lines: tuple[str, ...]

    @property
    def payloads(self) -> list[str]:
        return [line.removeprefix("data: ") for line in self.lines if line.startswith("data:")]

    @property
    def comments(self) -> list[str]:
        return [line for line in self.lines if line.startswith(":")]

    @property
    def chunks(self) -> list[Chunk]:
        return [json.loads(payload) for payload in self.payloads if payload != DONE]

    @property
    def deltas(self) -> list[str]:
        """The content of every delta, as it came."""
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        found = [choice["delta"].get("content") for choice in choices]
        return [text for text in found if text is not None]

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    @property
    def reasons(self) -> list[str]:
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return [c["finish_reason"] for c in choices if c["finish_reason"] is not None]

    @property
    def is_done(self) -> bool:
        return self.payloads[-1:] == [DONE]


@contextmanager
def opened(
    program: Program,
    body: Mapping[str, Any],
    *,
    path: str = CHAT,
    headers: Mapping[str, str] | None = None,
) -> Iterator[http.client.HTTPResponse]:
    """The answer with only its headers read. Leaving the block closes the connection at once."""
    address = urlsplit(program.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection.request("POST", path, json.dumps(body), sent)
        yield connection.getresponse()
    finally:
        connection.close()


def stream(program: Program, body: Mapping[str, Any], *, path: str = CHAT) -> Streamed:
    """Fails the test for a status that is not 200, another content type, or broken UTF-8."""
    with opened(program, {**body, "stream": True}, path=path) as response:
        raw = response.read()
    assert response.status == 200, raw
    assert response.headers["Content-Type"].startswith("text/event-stream")
    return Streamed(lines=tuple(raw.decode("utf-8", errors="strict").split("\n")))


def stream_chat(program: Program, text: str, **fields: Any) -> Streamed:
    return stream(program, chat_body(text, **fields))


def post_raw(
    program: Program, body: Mapping[str, Any], *, path: str = CHAT
) -> tuple[int, str, Any]:
    """(status, content type, parsed body) of an answer that is no stream."""
    with opened(program, body, path=path) as response:
        return response.status, response.headers["Content-Type"], json.loads(response.read())


def conversation(*turns: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    """A body of (role, content) turns at temperature 0."""
    messages = [{"role": role, "content": content} for role, content in turns]
    return chat_body("", **fields) | {"messages": messages}


def prompt_tokens(program: Program, body: Mapping[str, Any]) -> int:
    status, answer = program.post(CHAT, body)
    assert status == 200, answer
    count = answer["usage"]["prompt_tokens"]
    assert isinstance(count, int)
    return count


def assert_error_object(body: Any, *, code: str | None = None, param: str | None = None) -> None:
    """The OpenAI error object, all four keys; `code` and `param` where they are known."""
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["code"] == code
    assert param is None or error["param"] == param


def assert_serves(program: Program, *, within_s: float = 2.0) -> None:
    """What every case requires afterwards: the next plain request succeeds at once."""
    served = program.health()["model"]
    began = time.monotonic()
    answer = program.chat("hi", model=served, max_tokens=2)
    assert time.monotonic() - began < within_s
    assert 1 <= answer["usage"]["completion_tokens"] <= 2


def await_idle(program: Program, within_s: float) -> dict[str, Any]:
    """Polls /health until no row runs or waits; fails the test when that takes longer."""
    deadline = time.monotonic() + within_s
    while True:
        health = program.health()
        batch = health["batch"]
        if batch["active_sequences"] == 0 and batch["queue_depth"] == 0:
            return health
        assert time.monotonic() < deadline, f"still busy after {within_s} s: {batch}"
        time.sleep(0.02)


def await_active(program: Program, rows: int, *, waiting: int = 0) -> None:
    """Polls /health until this many rows run and wait."""
    program.await_health(batch__active_sequences=rows, batch__queue_depth=waiting)


def processes(program: Program) -> dict[str, psutil.Process]:
    """The front and the chat worker."""
    health = program.health()
    return {
        "front": psutil.Process(health["front"]["pid"]),
        "worker": psutil.Process(health["worker"]["pid"]),
    }
