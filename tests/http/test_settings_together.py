"""Many clients change the settings at once: nobody ever sees the half of a change."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from tests.config.live_store import new_store
from tests.http.site import Site, Start

pytestmark = pytest.mark.asyncio
SETTINGS = "/v1/settings"
WRITERS = range(1, 9)
TURNS = 8


@pytest_asyncio.fixture
async def live(start: Start) -> Site:
    return await start(settings=new_store())


def quad(number: int) -> dict[str, Any]:
    """Four names that must agree, in any order."""
    values: list[tuple[str, Any]] = [
        ("default_max_tokens", number),
        ("default_seed", number),
        ("default_top_k", number),
        ("chat_template_kwargs", {"number": number}),
    ]
    return dict(random.Random(number).sample(values, 4))


def numbers(current: dict[str, Any]) -> set[int]:
    """One number where the four agree."""
    return {
        current["default_max_tokens"],
        current["default_seed"],
        current["default_top_k"],
        current["chat_template_kwargs"]["number"],
    }


async def test_four_names_change_together_under_load(live: Site) -> None:
    prints: dict[str, set[int]] = {}

    async def write(number: int) -> None:
        for _ in range(TURNS):
            answer = (await live.http.patch(SETTINGS, json=quad(number))).json()
            assert numbers(answer["current"]) == {number}
            prints.setdefault(answer["fingerprint"], set()).add(number)

    async def look() -> None:
        for _ in range(TURNS):
            response = await live.http.get(SETTINGS)
            body = response.json()
            assert len(numbers(body["current"])) == 1
            assert response.headers["etag"] == f'"{body["fingerprint"]}"'
            prints.setdefault(body["fingerprint"], set()).update(numbers(body["current"]))

    async def ask() -> None:
        for _ in range(TURNS):
            assert (await live.post()).status_code == 200

    await live.http.patch(SETTINGS, json=quad(1))
    writers = [write(number) for number in WRITERS]
    await asyncio.gather(*writers, look(), look(), ask(), ask())
    seen = set()
    for request in live.generator.requests:
        kwargs = request.settings.template_kwargs
        seen.add((request.max_tokens, request.sampling.seed, request.sampling.top_k))
        assert request.max_tokens == request.sampling.seed == request.sampling.top_k
        assert kwargs == {"number": request.max_tokens}
    assert len(seen) > 1
    assert all(len(of) == 1 for of in prints.values())
    assert len(prints) == len(WRITERS)
    _assert_unbroken((await live.http.get(f"{SETTINGS}/history")).json()["history"])


def _assert_unbroken(history: list[dict[str, Any]]) -> None:
    """Each change begins where the one before it ended."""
    assert [change["version"] for change in history] == list(range(1, len(history) + 1))
    for before, after in pairwise(history):
        for name, pair in after["changes"].items():
            assert pair["old"] == before["changes"][name]["new"]


async def test_no_update_is_lost_between_clients_that_say_what_they_saw(live: Site) -> None:
    refused = 0

    async def count_up() -> None:
        nonlocal refused
        done = 0
        while done < 3:
            seen = await live.http.get(SETTINGS)
            more = {"default_top_k": seen.json()["current"]["default_top_k"] + 1}
            headers = {"If-Match": seen.headers["etag"]}
            answer = await live.http.patch(SETTINGS, json=more, headers=headers)
            done += answer.status_code == 200
            refused += answer.status_code == 412

    await live.http.patch(SETTINGS, json={"default_top_k": 0})
    async with asyncio.timeout(30):
        await asyncio.gather(*(count_up() for _ in WRITERS))
    current = (await live.http.get(SETTINGS)).json()["current"]
    assert current["default_top_k"] == 3 * len(WRITERS)
    assert refused > 0
