"""Public faults, family H: the HTTP border."""

import http.client
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cases.asking import assert_error_object
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

ROWS = Path(__file__).parents[2] / "conf" / "routes" / "rows"
KEY = "secret-of-the-test"
ORIGIN = "https://page.example"
PREFIX = "/llm"
SENT = {
    *("authorization", "content-type", "x-conversation-id", "x-priority"),
    *("x-api-key", "anthropic-version", "anthropic-beta"),
    *("anthropic-dangerous-direct-browser-access", "x-stainless-lang"),
}
"""Headers of a page that uses all there is. One by one: `*` does not cover `Authorization`."""


def route_table() -> list[tuple[str, str]]:
    """(method, path) of every row, aliases included."""
    rows = [row for file in sorted(ROWS.glob("*.yaml")) for row in _rows(file)]
    return [(method, path) for row in rows for path in row["paths"] for method in row["methods"]]


def _rows(file: Path) -> list[Mapping[str, Any]]:
    return list(yaml.safe_load(file.read_text(encoding="utf-8")).values())


PATHS = sorted({path for _, path in route_table()})


class Keyed(Program):
    """Its own plain requests carry the key."""

    def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        return super().call(
            method, path, body, {"Authorization": f"Bearer {KEY}", **(headers or {})}
        )


@pytest.fixture(scope="module")
def keyed() -> Iterator[Program]:
    with Keyed("model=echo", f"server.api_keys=[{KEY}]") as program:
        yield program


def send(
    program: Program, method: str, path: str, headers: Mapping[str, str]
) -> tuple[int, http.client.HTTPMessage, bytes]:
    address = urlsplit(program.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def preflight(program: Program, path: str, method: str) -> tuple[int, http.client.HTTPMessage]:
    """As a browser sends it: without a key, with what the page is about to send."""
    asked = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": ",".join(sorted(SENT)),
    }
    status, headers, _ = send(program, "OPTIONS", path, asked)
    return status, headers


@pytest.mark.parametrize(("method", "path"), route_table())
def test_h2_preflight_of_every_route_is_answered(keyed: Program, method: str, path: str) -> None:
    """H2: 405 for OPTIONS although CORS was configured.

    https://github.com/jundot/omlx/issues/17
    """
    status, headers = preflight(keyed, path, method)
    assert status == 200
    assert headers["Access-Control-Allow-Origin"] in ("*", ORIGIN)
    assert method in headers["Access-Control-Allow-Methods"].split(", ")
    allowed = headers["Access-Control-Allow-Headers"].split(",")
    assert {name.strip().lower() for name in allowed} >= SENT


@pytest.mark.parametrize("path", PATHS)
def test_h2_options_without_an_origin_is_answered(keyed: Program, path: str) -> None:
    """H2: a plain OPTIONS, as monitors send it, is not refused either."""
    status, _, _ = send(keyed, "OPTIONS", path, {})
    assert status == 200


@pytest.mark.parametrize("path", PATHS)
def test_h2_the_request_that_follows_still_needs_its_key(keyed: Program, path: str) -> None:
    """H2: what a preflight opens is nothing; and the page may read the refusal."""
    method = next(method for method, known in route_table() if known == path)
    status, headers, _ = send(keyed, method, path, {"Origin": ORIGIN})
    is_open = path in ("/health", "/v1/health", "/")
    assert status == (200 if is_open else 401)
    assert headers["Access-Control-Allow-Origin"] in ("*", ORIGIN)


def test_h2_a_method_that_is_not_there_is_readable_too(keyed: Program) -> None:
    """H2's kind: 404 and 405 carry the CORS headers and the error object."""
    origin = {"Origin": ORIGIN}
    for method, path, status in (("GET", "/v1/chat/completions", 405), ("GET", "/nowhere", 404)):
        assert keyed.call(method, path, headers=origin)[0] == status
        assert_error_object(keyed.call(method, path)[1])
        key = {"Authorization": f"Bearer {KEY}", **origin}
        assert "Access-Control-Allow-Origin" in send(keyed, method, path, key)[1]


@pytest.fixture(scope="module")
def narrow() -> Iterator[Program]:
    """One page may call, behind a prefix, with credentials."""
    cors = ("server.cors.origins=['https://page.example']", "server.cors.credentials=true")
    with Prefixed("model=echo", f"server.api_prefix={PREFIX}", *cors) as program:
        yield program


class Prefixed(Program):
    """Its own plain requests carry the prefix."""

    def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        return super().call(method, PREFIX + path, body, headers)


@pytest.mark.parametrize("path", PATHS)
def test_h2_behind_a_prefix_with_one_origin(narrow: Program, path: str) -> None:
    """H2: the same for every other way CORS can be configured."""
    status, headers = preflight(narrow, PREFIX + path, "POST")
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, ORIGIN)
