"""The native completion routes over HTTP: their paths, streams and errors."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from mlxcel.core.errors import ErrorInfo, GenerationFailed, NotSupported, QueueFull
from mlxcel.core.events import Accepted, Failed, TextDelta
from mlxcel.core.request import InfillPrompt, TextPrompt
from tests.http import site as sites
from tests.http.site import ENDING, Site, Start

pytestmark = pytest.mark.asyncio

GAP = {"input_prefix": "a", "input_suffix": "b"}


def frames(text: str) -> list[Any]:
    return [orjson.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
async def test_both_paths_answer_in_the_native_shape(site: Site, path: str) -> None:
    response = await site.http.post(path, json={"prompt": "hi"})
    body = response.json()
    assert (response.status_code, body["content"], body["stop_type"]) == (200, "Hello", "eos")
    assert (body["prompt"], body["model"], "choices" in body) == ("hi", "tiny", False)
    assert site.generator.requests[-1].prompt == TextPrompt(text="hi")
    assert response.headers["X-Cache-Status"]


async def test_a_gap_is_filled(site: Site) -> None:
    response = await site.http.post("/infill", json=GAP | {"stream": True})
    assert [frame["content"] for frame in frames(response.text)] == ["Hel", "lo", ""]
    assert site.generator.requests[-1].prompt == InfillPrompt(prefix="a", suffix="b")


async def test_a_stream_ends_without_done(site: Site) -> None:
    response = await site.http.post("/completion", json={"prompt": "hi", "stream": True})
    assert response.headers["Content-Type"].startswith("text/event-stream")
    *pieces, last = frames(response.text)
    assert [piece["stop"] for piece in pieces] == [False, False]
    assert (last["stop"], last["content"], last["generation_settings"]["stream"]) == (
        True,
        "",
        True,
    )


FAILED = Failed(ErrorInfo(code="worker_died", status=503, message="it died"))


@pytest.mark.parametrize("failure", [FAILED, GenerationFailed("it died")], ids=["told", "raised"])
async def test_a_stream_that_fails_says_so_in_envelope_b(site: Site, failure: Any) -> None:
    site.generator.script = [Accepted(3), TextDelta("a", ids=(5,)), failure]
    response = await site.http.post("/completion", json={"prompt": "hi", "stream": True})
    first, last = frames(response.text)
    assert (response.status_code, first["tokens"]) == (200, [5])
    assert (last["error"]["code"], last["error"]["type"]) == (500, "server_error")
    assert "it died" in last["error"]["message"]


async def test_before_a_stream_is_opened_a_failure_is_an_answer(site: Site) -> None:
    site.generator.script = [QueueFull()]
    response = await site.http.post("/completion", json={"prompt": "hi", "stream": True})
    assert response.status_code == 503
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_field_that_cannot_be_used_is_told_in_envelope_a(site: Site) -> None:
    response = await site.http.post("/completion", json={"prompt": ["a", "b"]})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "prompt", None)
    assert error["type"] == "invalid_request_error"
    assert not site.generator.requests


@pytest.mark.parametrize("path", ["/completion", "/completions", "/infill"])
async def test_without_a_model_that_generates_the_routes_say_so(start: Start, path: str) -> None:
    site = await start(generate=None)
    response = await site.http.post(path, json={"prompt": "hi"})
    assert response.status_code == 501


async def test_a_model_without_the_markers_cannot_fill_gaps(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = replace(sites.MODEL, lacks_fim=("middle",))
    monkeypatch.setattr(sites, "MODEL", lacking)
    response = await site.http.post("/infill", json={})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (NotSupported.status, "not_supported_error")
    assert "middle" in error["message"]


async def test_streams_are_told_their_tokens(site: Site) -> None:
    body = {"prompt": "hi"}
    for stream in (True, False):
        site.generator.script = [Accepted(3), TextDelta("a"), *ENDING]
        await site.http.post("/completion", json=body | {"stream": stream})
    assert [request.tells_ids for request in site.generator.requests] == [True, False]
