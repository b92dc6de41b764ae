"""Which pages may talk to the server; preflights of every path."""

from collections.abc import Sequence
from typing import Any

import pytest

from mlxcel.http.cors import CorsPolicy
from mlxcel.http.options import CorsOptions
from tests.http.site import Site, Start

PAGE = "https://page.example"
ALLOW = "access-control-allow-origin"


def policy(
    *origins: str, credentials: bool = True, headers: Sequence[str] = ("Authorization",)
) -> CorsPolicy:
    options = CorsOptions(
        origins=origins, methods=("GET",), headers=tuple(headers), credentials=credentials
    )
    return CorsPolicy(options)


def cors_section(**changed: object) -> dict[str, Any]:
    section = {
        "origins": ["*"],
        "allowed_origins": None,
        "methods": ["GET"],
        "headers": ["*"],
        "expose": ["ETag"],
        "credentials": True,
    }
    return section | changed


@pytest.mark.parametrize(
    ("origins", "credentials", "origin", "allowed"),
    [
        pytest.param(["*"], True, PAGE, PAGE, id="any"),
        pytest.param(["*"], True, None, "", id="any-without-origin"),
        pytest.param(["*"], False, PAGE, "*", id="any-without-credentials"),
        pytest.param(["localhost"], True, "http://localhost:3000", "http://localhost:3000", id="l"),
        pytest.param(["localhost"], True, "http://127.0.0.1", "http://127.0.0.1", id="loopback-4"),
        pytest.param(["localhost"], True, "http://[::1]:5", "http://[::1]:5", id="loopback-6"),
        pytest.param(["localhost"], True, "https://localhost.evil.example", None, id="lookalike"),
        pytest.param(["localhost"], True, None, None, id="localhost-without-origin"),
        pytest.param(["localhost"], True, "http://[", None, id="no-url"),
        pytest.param([PAGE], True, "https://evil.example", PAGE, id="fixed-text"),
        pytest.param([PAGE, "http://b"], True, "http://b", "http://b", id="listed"),
        pytest.param([PAGE, "http://b"], True, "http://c", None, id="not-listed"),
        pytest.param([PAGE, "http://b"], True, "http://b:1", None, id="listed-exactly"),
    ],
)
def test_origin(
    origins: list[str], credentials: bool, origin: str | None, allowed: str | None
) -> None:
    headers = policy(*origins, credentials=credentials).origin_headers(origin)
    assert headers.get("Access-Control-Allow-Origin") == allowed


@pytest.mark.parametrize(
    ("named", "asked", "allowed"),
    [
        pytest.param(["*"], "x-mine, authorization", "x-mine, authorization", id="any-asked"),
        pytest.param(["*"], None, "*", id="any-unasked"),
        pytest.param(["A", "B", "*"], "x-mine", "x-mine", id="beside-named-ones"),
        pytest.param(["A", "B", "*"], None, "A, B", id="beside-named-ones-unasked"),
        pytest.param(["A", "B"], "x-mine", "A, B", id="named"),
    ],
)
def test_headers_are_answered_by_name(named: list[str], asked: str | None, allowed: str) -> None:
    """A browser does not take `*` for `Authorization`."""
    headers = policy("*", headers=named).preflight_headers(PAGE, asked)
    assert headers["Access-Control-Allow-Headers"] == allowed


def test_nothing_is_exposed_where_nothing_is_named() -> None:
    assert "Access-Control-Expose-Headers" not in policy("*").origin_headers(PAGE)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/v1/settings", "/health", "/nowhere"]
)
async def test_a_preflight_is_answered_on_every_path(start: Start, path: str) -> None:
    site = await start(api_keys=["k"])
    response = await site.http.options(path, headers={"Origin": PAGE})
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers[ALLOW] == PAGE
    assert response.headers["access-control-allow-credentials"] == "true"
    assert response.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert response.headers["access-control-allow-headers"] == "Authorization, Content-Type"


@pytest.mark.asyncio
async def test_errors_and_streams_carry_the_origin(start: Start) -> None:
    site = await start(api_keys=["k"])
    page = {"Origin": PAGE}
    right = page | {"X-Api-Key": "k"}
    answers = [
        await site.http.get("/v1/models", headers=page),
        await site.http.get("/nowhere", headers=right),
        await site.http.get("/v1/chat/completions", headers=right),
        await site.http.post("/v1/chat/completions", headers=right),
        await site.post(headers=right),
    ]
    assert [answer.status_code for answer in answers] == [401, 404, 405, 415, 200]
    assert {answer.headers[ALLOW] for answer in answers} == {PAGE}
    exposed = {answer.headers["access-control-expose-headers"] for answer in answers}
    assert exposed == {"X-Cache-Status, ETag"}
    assert all("access-control-allow-methods" not in answer.headers for answer in answers)


@pytest.mark.asyncio
async def test_a_refused_origin_still_gets_its_answer(start: Start) -> None:
    site = await start(cors=cors_section(origins=["localhost"], credentials=False))
    response = await site.http.get("/health", headers={"Origin": PAGE})
    assert response.status_code == 200
    assert ALLOW not in response.headers
    assert "access-control-expose-headers" not in response.headers


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        pytest.param(PAGE, PAGE, id="listed"),
        pytest.param("https://page.example:8443", None, id="another-port"),
        pytest.param("http://page.example", None, id="another-scheme"),
        pytest.param("https://evil.example", None, id="not-listed"),
        pytest.param(None, None, id="no-origin"),
    ],
)
@pytest.mark.parametrize("listed", [[PAGE], [PAGE, "http://b"]], ids=["one", "two"])
async def test_allow_list_is_exact(
    start: Start, listed: list[str], origin: str | None, allowed: str | None
) -> None:
    """Unlike one text of `origins`, which is said to every page."""
    site = await start(cors=cors_section(origins=None, allowed_origins=listed))
    headers = {} if origin is None else {"Origin": origin}
    for response in (
        await site.http.get("/health", headers=headers),
        await site.http.options("/nowhere", headers=headers),
    ):
        assert response.status_code == 200
        assert response.headers.get(ALLOW) == allowed


@pytest.mark.asyncio
async def test_without_an_origin_the_header_is_empty(site: Site) -> None:
    assert (await site.http.get("/health")).headers[ALLOW] == ""
