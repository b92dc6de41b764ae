"""API keys: where they come from, which header counts, what needs none."""

import asyncio
from pathlib import Path

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.http.auth import load_keys
from tests.http.site import Start

KEYS = ["right", "other"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        pytest.param("a\nb\n", ["a", "b"], id="lines"),
        pytest.param("# note\n\na", ["a"], id="comments-and-empty-lines"),
        pytest.param(" a \n", [" a "], id="not-trimmed"),
        pytest.param(" # a\n", [" # a"], id="comment-only-at-line-start"),
        pytest.param("a\r\n", ["a\r"], id="cr-stays"),
    ],
)
def test_a_key_file_has_one_key_per_line(tmp_path: Path, text: str, keys: list[str]) -> None:
    file = tmp_path / "keys"
    file.write_bytes(text.encode())
    found = load_keys(["cli"], [str(file)])
    assert all(found.has(key) for key in ["cli", *keys])
    assert not found.has("")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param(b"", "holds no key", id="empty"),
        pytest.param(b"# only notes\n", "holds no key", id="comments"),
        pytest.param(b"\xff\xfe", "cannot be read", id="not-utf-8"),
    ],
)
def test_a_file_without_keys_stops_the_start(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StartupError, match=says):
        load_keys([], [str(file)])


@pytest.mark.parametrize("keys", [[""], ["", ""]], ids=["one", "two"])
def test_keys_that_are_given_but_empty_stop_the_start(tmp_path: Path, keys: list[str]) -> None:
    file = tmp_path / "keys"
    file.write_text("a")
    with pytest.raises(StartupError, match=r"server\.api_keys is given but holds no key"):
        load_keys(keys, [str(file)])


def test_an_empty_key_beside_a_good_one_counts_for_nothing() -> None:
    found = load_keys(["", "a"], [])
    assert found.has("a")
    assert not found.has("")


def test_crlf_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"a\r\n")
    load_keys([], [str(file)])
    assert "CRLF" in caplog.text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 401, id="none"),
        pytest.param({"Authorization": "Bearer right"}, 200, id="bearer"),
        pytest.param({"Authorization": "Bearer other"}, 200, id="second-key"),
        pytest.param({"Authorization": "right"}, 200, id="bare"),
        pytest.param({"Authorization": "bearer right"}, 401, id="lower-case-scheme"),
        pytest.param({"Authorization": "Bearer Bearer right"}, 401, id="prefix-twice"),
        pytest.param({"X-Api-Key": "right"}, 200, id="x-api-key"),
        pytest.param({"Authorization": "", "X-Api-Key": "right"}, 200, id="empty-then-good"),
        pytest.param({"Authorization": "Bearer no", "X-Api-Key": "right"}, 401, id="bad-then-good"),
        pytest.param({"Authorization": "Bearer"}, 401, id="no-key"),
        pytest.param({"Authorization": b"Bearer \xff"}, 401, id="not-utf-8"),
    ],
)
async def test_which_header_counts(
    start: Start, headers: dict[str, str | bytes], status: int
) -> None:
    site = await start(api_keys=KEYS)
    response = await site.http.get("/v1/models", headers=headers)
    assert response.status_code == status
    if status == 401:
        assert response.json() == {
            "error": {
                "message": "Invalid API key",
                "type": "invalid_api_key",
                "param": None,
                "code": "invalid_api_key",
            }
        }


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/health", 200, id="health"),
        pytest.param("GET", "/v1/health", 200, id="health-alias"),
        pytest.param("HEAD", "/", 200, id="root"),
        pytest.param("OPTIONS", "/v1/models", 200, id="preflight"),
        pytest.param("GET", "/v1/settings", 401, id="settings"),
        pytest.param("GET", "/nowhere", 401, id="unknown-path"),
        pytest.param("GET", "/health/", 401, id="slash-more"),
        pytest.param("GET", "/%68ealth", 401, id="escaped"),
        pytest.param("GET", "/Health", 401, id="upper-case"),
        pytest.param("GET", "/health?x=/v1/models", 200, id="query"),
        pytest.param("GET", "/v1/chat/completions", 401, id="wrong-method"),
        pytest.param("POST", "/v1/chat/completions", 401, id="before-the-body-is-read"),
    ],
)
async def test_what_needs_no_key(start: Start, method: str, path: str, status: int) -> None:
    site = await start(api_keys=KEYS)
    assert (await site.http.request(method, path)).status_code == status


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "target",
    [
        "//health",
        "//health/v1/models",
        "/health/../v1/models",
        "/health;/v1/models",
        "http://x/v1/models",
        "/v1/models#/health",
        "/v1/models?/health",
        "/v1/models/",
        "/./v1/models",
    ],
)
async def test_no_spelling_of_a_path_goes_around_the_key(start: Start, target: str) -> None:
    """As it stands in the request line: clients tidy paths up."""
    site = await start(api_keys=KEYS)
    reader, writer = await site.connect()
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert answer.split(b" ", 2)[1] in (b"400", b"401")
    writer.close()


@pytest.mark.asyncio
async def test_a_body_that_is_too_large_needs_a_key_too(start: Start) -> None:
    site = await start(api_keys=KEYS, body_bytes=20_000)
    body = {"x": "y" * 30_000}
    assert (await site.post(body)).status_code == 401
    right = {"Authorization": "Bearer right"}
    assert (await site.post(body, headers=right)).status_code == 413


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/nowhere"])
async def test_a_stranger_is_told_before_the_body_is_there(start: Start, path: str) -> None:
    site = await start(api_keys=KEYS)
    reader, writer = await site.connect()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert answer.startswith(b"HTTP/1.1 401")
    writer.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nX: %b\r\n\r\n" % (b"x" * 17_000), 431, id="large"
        ),
        pytest.param(b"nonsense\r\n\r\n", 400, id="no-http"),
    ],
)
async def test_a_head_that_cannot_be_read_is_told_without_a_key(
    start: Start, head: bytes, status: int
) -> None:
    site = await start(api_keys=KEYS)
    reader, writer = await site.connect()
    writer.write(head)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    writer.close()


@pytest.mark.asyncio
async def test_behind_a_prefix_health_needs_a_key(start: Start) -> None:
    site = await start(api_keys=KEYS, api_prefix="/llm")
    assert (await site.http.get("/llm/health")).status_code == 401
    right = {"Authorization": "Bearer right"}
    assert (await site.http.get("/llm/health", headers=right)).status_code == 200
    assert (await site.http.get("/v1/models", headers=right)).status_code == 404
