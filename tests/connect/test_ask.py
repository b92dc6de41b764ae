"""What answers in place of our server, and where a configured one is met."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from mlxcel.connect.ask import ask, configured_url
from mlxcel.connect.setup import ConnectFailed


@contextmanager
def answering(status: int, body: str, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """The address, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join(10)


def models(**entry: Any) -> str:
    return json.dumps({"data": [{"id": "m", "meta": {"n_ctx": 4096}} | entry]})


@pytest.mark.parametrize(
    ("meta", "window"),
    [
        pytest.param({"n_ctx": 4096, "n_ctx_train": 8192}, 4096, id="configured"),
        pytest.param({"n_ctx": 0, "n_ctx_train": 8192}, 8192, id="the-models-own"),
    ],
)
def test_the_window_is_the_one_of_a_slot(meta: dict[str, int], window: int) -> None:
    with answering(200, models(meta=meta)) as (url, _):
        assert ask(url, key=None).window == window


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        pytest.param(200, "<html>", "is not JSON", id="html"),
        pytest.param(200, "[]", "names no model", id="list"),
        pytest.param(200, '{"data": []}', "names no model", id="empty"),
        pytest.param(200, models(id="a\nb"), "names no model", id="name-of-two-lines"),
        pytest.param(200, models(meta=None), "how long its context is", id="no-window"),
        pytest.param(200, models(meta={"n_ctx": True}), "how long its context is", id="true"),
        pytest.param(503, "", "answers 503", id="busy"),
    ],
)
def test_what_is_no_answer(status: int, body: str, says: str) -> None:
    with answering(status, body) as (url, _), pytest.raises(ConnectFailed, match=says):
        ask(url, key=None)


def test_nobody_is_followed_elsewhere() -> None:
    with answering(200, models()) as (other, asked):
        with (
            answering(302, "", Location=f"{other}/v1/models") as (url, _),
            pytest.raises(ConnectFailed, match="answers 302"),
        ):
            ask(url, key="secret")
        assert asked == []


@pytest.mark.parametrize(
    ("changed", "url"),
    [
        pytest.param({}, "http://127.0.0.1:8080", id="default"),
        pytest.param({"host": "0.0.0.0"}, "http://127.0.0.1:8080", id="everywhere"),
        pytest.param({"host": "::"}, "http://[::1]:8080", id="everywhere-6"),
        pytest.param({"host": "fe80::1"}, "http://[fe80::1]:8080", id="v6"),
        pytest.param({"host": "box.lan"}, "http://box.lan:8080", id="name"),
        pytest.param({"api_prefix": "/llm/"}, "http://127.0.0.1:8080/llm", id="prefix"),
        pytest.param({"tls": {"cert": "c.pem"}}, "https://127.0.0.1:8080", id="tls"),
    ],
)
def test_where_a_configured_server_is_met(changed: dict[str, Any], url: str) -> None:
    section = {"host": "127.0.0.1", "port": 8080, "api_prefix": "", "tls": {"cert": None}}
    assert configured_url(section | changed) == url
