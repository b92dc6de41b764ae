"""Requests that reach no handler or that a handler cannot use, and the plain GET routes."""

import asyncio
from typing import Any

import pytest

from mlxcel.core.status import State, WorkerStats
from tests.http.site import BODY, Scripted, Site, Start

pytestmark = pytest.mark.asyncio
CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


def error(response: Any) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    body: dict[str, Any] = response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    return body


async def test_an_unknown_path_is_named(site: Site) -> None:
    response = await site.http.get("/nowhere")
    assert response.status_code == 404
    assert error(response)["type"] == "not_found_error"
    assert "/nowhere" in error(response)["message"]


async def test_a_wrong_method_names_the_right_ones(site: Site) -> None:
    response = await site.http.get(CHAT)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert "allowed: POST" in error(response)["message"]


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        pytest.param(None, 415, id="none"),
        pytest.param("text/plain", 415, id="text"),
        pytest.param("application/x-www-form-urlencoded", 415, id="form"),
        pytest.param("application/jsonx", 415, id="nearly"),
        pytest.param("application/json", 200, id="json"),
        pytest.param("Application/JSON; charset=utf-8", 200, id="json-with-charset"),
        pytest.param("application/vnd.api+json", 200, id="structured"),
    ],
)
async def test_content_type(site: Site, content_type: str | None, status: int) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = await site.http.post(CHAT, content=body, headers=headers)
    assert response.status_code == status
    if status == 415:
        assert error(response)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut-off"),
        pytest.param(b"[1]", id="array"),
        pytest.param(b"null", id="null"),
        pytest.param(b'"\xff"', id="not-utf-8"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"seed": 99999999999999999999999}', id="beyond-64-bits"),
        pytest.param(b'{"temperature": NaN}', id="nan"),
    ],
)
async def test_a_body_that_is_no_json_object_is_400(site: Site, content: bytes) -> None:
    response = await site.http.post(CHAT, content=content, headers=JSON)
    assert response.status_code == 400
    assert error(response)["type"] == "invalid_request_error"
    assert len(error(response)["message"].encode()) <= 1024
    assert (await site.post()).status_code == 200


async def test_a_bad_field_is_named(site: Site) -> None:
    response = await site.post(BODY | {"top_p": "wide"})
    assert response.status_code == 400
    assert error(response)["param"] == "top_p"
    assert error(response)["message"] == 'top_p: wants a number, got string "wide"'


async def test_the_size_limit_is_exact(start: Start) -> None:
    limit = 20_000
    site = await start(body_bytes=limit)
    head, tail = b'{"model":"m","messages":[{"role":"user","content":"', b'"}]}'
    fits = head + b"x" * (limit - len(head) - len(tail)) + tail
    assert (await site.http.post(CHAT, content=fits, headers=JSON)).status_code == 200
    response = await site.http.post(CHAT, content=fits + b" ", headers=JSON)
    assert response.status_code == 413
    assert error(response)["message"] == "Request body too large."
    assert (await site.post()).status_code == 200


@pytest.mark.parametrize(
    ("path", "header", "status", "says"),
    [
        pytest.param(
            "/" + "x" * 16_500, "", 414, "the request line is longer than 16384", id="url"
        ),
        pytest.param("/v1/models", "x" * 16_500, 431, "headers are larger than 16384", id="header"),
        pytest.param("/?" + "x" * 9_000, "x" * 9_000, 431, "larger than 16384 bytes", id="both"),
    ],
)
async def test_a_head_that_is_too_large_names_the_limit(
    site: Site, path: str, header: str, status: int, says: str
) -> None:
    response = await site.http.get(path, headers={"X-Much": header})
    assert response.status_code == status
    assert error(response)["type"] == "invalid_request_error"
    assert says in error(response)["message"]
    assert (await site.post()).status_code == 200


HEAD_PATHS = ("/v1/models", "/models", "/health", "/v1/health", "/", "/v1/settings")


@pytest.mark.parametrize("path", [*HEAD_PATHS, "/v1/settings/history"])
async def test_head_is_get_without_a_body(site: Site, path: str) -> None:
    got, head = await site.http.get(path), await site.http.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


async def test_a_request_line_that_is_no_http_gets_an_answer(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"nonsense\r\n\r\n")
    head = await asyncio.wait_for(reader.read(1000), 5)
    assert head.startswith(b"HTTP/1.1 400")
    assert b'"invalid_request_error"' in head
    writer.close()


async def test_bytes_that_are_no_utf8_in_a_method_get_an_answer(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"G\xff\xfe /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    head = await asyncio.wait_for(reader.read(1000), 5)
    assert head.startswith(b"HTTP/1.1 405")
    writer.close()


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("sent", [{}, {"X-Request-Id": "mine-7"}], ids=["our-id", "their-id"])
async def test_the_log_names_the_request_that_failed(
    site: Site,
    generator: Scripted,
    caplog: pytest.LogCaptureFixture,
    stream: bool,
    sent: dict[str, str],
) -> None:
    generator.script = [generator.script[0], ValueError("boom")]
    response = await site.post(BODY | {"stream": stream}, headers=sent)
    assert response.status_code == (200 if stream else 500)
    shown = response.headers["x-request-id"]
    assert shown == sent.get("X-Request-Id", generator.requests[0].id)
    assert f"POST {CHAT} failed (request {shown})" in caplog.text
    assert "ValueError: boom" in caplog.text


async def test_models(site: Site) -> None:
    body = (await site.http.get("/v1/models")).json()
    assert [entry["id"] for entry in body["data"]] == ["tiny"]
    assert body["data"][0]["meta"]["n_params"] == 1000


async def test_health(site: Site) -> None:
    response = await site.http.get("/health")
    body = response.json()
    assert (response.status_code, body["status"], body["model"]) == (200, "ok", "tiny")
    assert body["observability"]["sequences_started"] == 9
    assert body["worker"]["pid"] == 42


@pytest.mark.parametrize(
    ("state", "active", "word"),
    [
        pytest.param(State.RESTARTING, 0, "restarting", id="restarting"),
        pytest.param(State.LOADING, 0, "loading model", id="loading"),
        pytest.param(State.OK, 4, "no slot available", id="full"),
    ],
)
async def test_health_is_503_when_a_request_would_not_start(
    site: Site, state: State, active: int, word: str
) -> None:
    site.generator.state = state
    site.generator.stats = WorkerStats(slots=4, active=active)
    response = await site.http.get("/health", params={"fail_on_no_slot": "1"})
    assert (response.status_code, response.json()["status"]) == (503, word)
    assert response.json()["error"]["type"] == "unavailable_error"


async def test_a_busy_server_is_healthy(site: Site) -> None:
    site.generator.stats = WorkerStats(slots=4, active=4, waiting=9)
    response = await site.http.get("/health")
    assert (response.status_code, response.json()["status"]) == (200, "ok")


async def test_a_prefix_moves_every_route(start: Start) -> None:
    site = await start(api_prefix="/llm")
    assert (await site.http.post("/llm/v1/chat/completions", json=BODY)).status_code == 200
    assert (await site.http.get("/llm/health")).status_code == 200
    assert (await site.http.get("/health")).status_code == 404
