"""POST /v1/chat/completions/control: thinking is ended from outside."""

import asyncio
import json
from typing import Any

import pytest

from mlxcel.core.events import Accepted, ChoiceFinished, Finished, FinishReason, ReasoningDelta
from tests.http.site import BODY, TIMINGS, USAGE, Scripted, Site, Start

pytestmark = pytest.mark.asyncio

PATH = "/v1/chat/completions/control"
END = [ChoiceFinished(FinishReason.EOS), Finished(usage=USAGE, timings=TIMINGS)]


async def running(
    site: Site, generator: Scripted, headers: dict[str, str] | None = None, **fields: Any
) -> tuple[str, asyncio.Event, "asyncio.Task[Any]"]:
    gate = asyncio.Event()
    generator.script = [Accepted(3), ReasoningDelta("hm"), gate, *END]
    before = generator.yielded
    body = BODY | {"stream": True} | fields
    task = asyncio.ensure_future(site.post(body, headers=headers))
    while generator.yielded < before + 2:
        await asyncio.sleep(0.01)
    return generator.requests[-1].id, gate, task


async def control(site: Site, name: str, headers: dict[str, str] | None = None) -> Any:
    body = {"id": name, "action": "reasoning_end"}
    answer = await site.http.post(PATH, json=body, headers=headers)
    assert answer.status_code == 200
    return answer.json()


async def test_an_armed_answer_is_told_to_stop_thinking(site: Site, generator: Scripted) -> None:
    name, gate, task = await running(site, generator, reasoning_control=True)
    assert await control(site, name) == {"success": True}
    assert generator.ended_thinking == [name]
    gate.set()
    assert name in (await task).text
    gone = await control(site, name)
    assert gone == {"success": False, "message": "no active completion for this id"}


async def test_one_that_did_not_ask_is_left_alone(site: Site, generator: Scripted) -> None:
    name, gate, task = await running(site, generator)
    refused = await control(site, name)
    assert refused["message"] == "reasoning control not enabled for this completion"
    assert generator.ended_thinking == []
    gate.set()
    await task


async def test_that_of_another_key_is_not_there(start: Start, generator: Scripted) -> None:
    site = await start(api_keys=["one", "two"])
    ours = {"Authorization": "Bearer one"}
    name, gate, task = await running(site, generator, ours, reasoning_control=True)
    seen = await control(site, name, {"Authorization": "Bearer two"})
    assert seen["message"] == "no active completion for this id"
    assert await control(site, name, ours) == {"success": True}
    gate.set()
    await task


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"{", "not JSON", id="broken"),
        pytest.param(b"[]", "missing completion id", id="array"),
        pytest.param(json.dumps({"action": "reasoning_end"}).encode(), "missing completion id",
                     id="no-id"),
        pytest.param(b'{"id": "", "action": "reasoning_end"}', "missing completion id", id="empty"),
        pytest.param(b'{"id": "x", "action": "stop"}', "unknown control action", id="action"),
        pytest.param(b'{"id": "x"}', "unknown control action", id="no-action"),
    ],
)  # fmt: skip
async def test_bad_bodies(site: Site, body: bytes, words: str) -> None:
    answer = await site.http.post(PATH, content=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert words in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", None)
