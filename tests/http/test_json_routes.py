"""What every route that takes JSON says of a body that is none: after the key, before all else."""

import re
from typing import Any

import pytest

from tests.http.site import ROUTES, ROWS, Site, Start

pytestmark = pytest.mark.asyncio
RAW = re.compile(r"/v1/streams?\b|/slots/|/lora-adapters|/control\b")
"""Routes that read bytes: no type is asked for, and they have words of their own for bad ones."""
NO_BODY = {"settings.revert", "refused.refuse", "cache.reset", "responses.cancel"}
"""Handlers that can do without one."""
NOTHING_KEPT = {"conversations.save", "conversations.load"}
"""Handlers that are not at work here: no conversation is kept, which is a 501."""
KEY = {"X-Api-Key": "k"}


def takes_json(row: dict[str, Any]) -> bool:
    is_on = row["when"] is True or ROUTES.get(str(row["when"]).partition(".")[2]) is True
    is_raw = (
        any(RAW.search(path) for path in row["paths"]) or row["handler"] in NO_BODY | NOTHING_KEPT
    )
    writes = {"POST", "PUT", "PATCH"} & set(row["methods"])
    return bool(writes) and is_on and not is_raw and set(row["needs"]) <= {"generate"}


JSON_ROWS = [
    pytest.param(method, path, id=f"{method}-{path}")
    for row in ROWS.values()
    if takes_json(row)
    for method in row["methods"]
    if method != "GET"
    for path in row["paths"]
]


@pytest.mark.parametrize(("method", "path"), JSON_ROWS)
async def test_body_that_is_no_json(start: Start, method: str, path: str) -> None:
    site: Site = await start(api_keys=["k"])
    path = re.sub(r"<[^>]*>", "1", path)
    told = []
    for content, kind in (
        (b"{}", "text/plain"),
        (b"{}", None),
        (b"", "application/json"),
        (b"{", "application/json"),
        (b'"\xff"', "application/problem+json"),
    ):
        headers = {} if kind is None else {"Content-Type": kind}
        stranger = await site.http.request(method, path, content=content, headers=headers)
        known = await site.http.request(method, path, content=content, headers=headers | KEY)
        told.append((stranger.status_code, known.status_code))
        assert known.headers["content-type"] == "application/json"
    assert told == [(401, 415), (401, 415), (401, 400), (401, 400), (401, 400)]


async def test_there_are_such_routes() -> None:
    assert len(JSON_ROWS) >= 5
