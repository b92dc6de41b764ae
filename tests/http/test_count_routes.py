"""What a body comes to before anything is generated, and the entries of the model list."""

from typing import Any

import pytest

from tests.http.site import BODY, Site, Start

COUNTS = ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"]
NO_MODEL = {"messages": BODY["messages"]}


@pytest.mark.parametrize("path", COUNTS)
@pytest.mark.parametrize("body", [BODY, NO_MODEL, BODY | {"model": None}, BODY | {"stream": True}])
@pytest.mark.asyncio
async def test_input_tokens(site: Site, path: str, body: dict[str, Any]) -> None:
    answer = await site.http.post(path, json=body)
    assert (answer.status_code, answer.json()) == (200, {"input_tokens": 3})


@pytest.mark.parametrize("body", [BODY, NO_MODEL])
@pytest.mark.asyncio
async def test_apply_template(site: Site, body: dict[str, Any]) -> None:
    answer = await site.http.post("/apply-template", json=body)
    assert (answer.status_code, answer.json()) == (200, {"prompt": "<user>hi"})


IMAGE = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/a.png"}}


@pytest.mark.parametrize("path", [*COUNTS, "/apply-template"])
@pytest.mark.parametrize(
    ("changed", "status", "param"),
    [
        pytest.param({"messages": []}, 400, "messages", id="no-message"),
        pytest.param({"tool_choice": "required"}, 400, "tool_choice", id="tools"),
        pytest.param(
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            501,
            "messages[0].content[0]",
            id="media",
        ),
    ],
)
@pytest.mark.asyncio
async def test_what_a_chat_would_refuse_is_refused(
    site: Site, path: str, changed: dict[str, Any], status: int, param: str
) -> None:
    answer = await site.http.post(path, json=BODY | changed)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param
    assert site.generator.requests == []


@pytest.mark.parametrize("name", ["tiny", "alias", "al%69as"])
@pytest.mark.asyncio
async def test_one_model_by_each_of_its_names(site: Site, name: str) -> None:
    listed = (await site.http.get("/v1/models")).json()["data"][0]
    answer = await site.http.get(f"/v1/models/{name}")
    assert answer.status_code == 200
    assert answer.json() | {"created": 0} == listed | {"created": 0}
    assert (listed["id"], listed["meta"]["ftype"]) == ("tiny", "MLX Q4")


@pytest.mark.parametrize("name", ["tin", "owner/tiny", "TINY", "tiny/", "al%2569as"])
@pytest.mark.asyncio
async def test_another_model_is_not_found(site: Site, name: str) -> None:
    answer = await site.http.get(f"/v1/models/{name}")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.asyncio
async def test_without_a_model_there_is_nothing_to_count(start: Start) -> None:
    site = await start(generate=None)
    for path in (*COUNTS, "/apply-template", "/v1/completions"):
        answer = await site.http.post(path, json=BODY)
        assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_implemented")
