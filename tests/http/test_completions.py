"""/v1/completions over HTTP: several prompts answered together, and what refuses them."""

import json
from typing import Any

import pytest

from tests.http.site import Site

PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "tiny", "prompt": ["a", "b"], "n": 1}


async def post(site: Site, **changed: Any) -> Any:
    return await site.http.post(PATH, json=BODY | changed)


@pytest.mark.asyncio
async def test_each_prompt_has_its_answer(site: Site) -> None:
    answer = await post(site)
    body = answer.json()
    assert answer.status_code == 200
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert [(c["index"], c["text"]) for c in body["choices"]] == [(0, "Hello"), (1, "Hello")]
    assert body["usage"]["completion_tokens"] == 4
    ids = [request.id for request in site.generator.requests]
    assert sorted(ids) == [body["id"], f"{body['id']}-1"]


@pytest.mark.asyncio
async def test_a_stream_counts_choices_through(site: Site) -> None:
    answer = await post(site, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    *chunks, usage = [json.loads(line) for line in lines[:-1] if not line.startswith(":")]
    texts = {0: "", 1: ""}
    for chunk in chunks:
        assert chunk["object"] == "text_completion"
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "Hello", 1: "Hello"}
    reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"]]
    assert len(reasons) - reasons.count(None) == 2
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 4)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.asyncio
async def test_a_bad_prompt_is_refused_as_json(site: Site, is_stream: bool) -> None:
    answer = await post(site, prompt=["a", " "], stream=is_stream)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    assert answer.json()["error"]["param"] == "prompt[1]"
    assert site.generator.requests == []


@pytest.mark.asyncio
async def test_no_alias_is_this_route(site: Site) -> None:
    """`/completions` and `/completion` are llama-server's own, which knows no list of texts."""
    for path in ("/completions", "/completion"):
        answer = await site.http.post(path, json=BODY)
        assert answer.status_code != 200
