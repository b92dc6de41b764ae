"""GET /openapi.json: what is mounted, and nothing else, with all that it takes and tells."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mlxcel.core.errors import StartupError
from mlxcel.http import wire
from mlxcel.http.handlers import find_handlers
from mlxcel.http.routes import read_rows
from tests.http.site import BODY, ROWS, Site, Start
from tests.wire_schemas import asked, faults, told

pytestmark = pytest.mark.asyncio
STREAMS = ("generate", "streams.show", "responses.create")
"""Handlers that may answer with one."""

Document = dict[str, Any]
WITHOUT_BODY = {
    *("cache_reset", "props_change", "refused", "response_cancel"),
    *("stream_delete", "conv_kv_delete"),
}
"""Rows that change something and look at no body."""


async def document(site: Site, prefix: str = "", **headers: str) -> Document:
    reply = await site.http.get(f"{prefix}/openapi.json", headers=headers)
    assert reply.status_code == 200, reply.text
    found: Document = reply.json()
    return found


def operations(shown: Document) -> set[tuple[str, str]]:
    return {(path, method) for path, item in shown["paths"].items() for method in item}


def mounted(prefix: str = "", without: tuple[str, ...] = ()) -> set[tuple[str, str]]:
    return {
        (prefix + re.sub(r"<(\w+)(:\w+)?>", r"{\1}", path), method.lower())
        for name, row in ROWS.items()
        for path in row["paths"]
        for method in row["methods"]
        if name not in without
    }


ON = {"metrics": True, "props": True}


async def test_it_has_every_route_that_is_mounted(start: Start) -> None:
    site = await start(routes=ON)
    assert operations(await document(site)) == mounted()


async def test_a_route_that_is_not_there_is_not_shown(start: Start) -> None:
    site = await start(routes=ON | {"settings": False})
    hidden = tuple(name for name, row in ROWS.items() if row["when"] == "routes.settings")
    assert operations(await document(site)) == mounted(without=hidden)


async def test_the_prefix_stands_before_every_path(start: Start) -> None:
    site = await start(routes=ON, api_prefix="/llm")
    shown = await document(site, "/llm")
    assert operations(shown) == mounted("/llm")


async def test_a_route_that_is_off_says_so(start: Start) -> None:
    site = await start(routes={"props": False})
    answers = (await document(site))["paths"]["/props"]["get"]["responses"]
    assert set(answers) == {"414", "431", "500", "501"}


async def test_keys(start: Start) -> None:
    site = await start(api_keys=["k"])
    shown = await document(site, Authorization="Bearer k")
    chat = shown["paths"]["/v1/chat/completions"]["post"]
    assert chat["security"] == [{"bearer": []}, {"header": []}]
    assert "401" in chat["responses"]
    health = shown["paths"]["/health"]["get"]
    assert "security" not in health
    assert "401" not in health["responses"]
    open_site = await start()
    shown = await document(open_site)
    assert "securitySchemes" not in shown["components"]
    assert "401" not in shown["paths"]["/v1/chat/completions"]["post"]["responses"]


@pytest.mark.parametrize("must", [True, False])
async def test_whether_a_model_must_be_named(start: Start, must: bool) -> None:
    site = await start(routes={"require_model": must})
    schemas = (await document(site))["components"]["schemas"]
    assert ("model" in schemas["openai_chat"]["required"]) is must
    assert ("model" in schemas["openai_completion"]["required"]) is must
    assert "messages" in schemas["openai_chat"]["required"]


async def test_every_reference_leads_somewhere_and_every_schema_is_one(site: Site) -> None:
    shown = await document(site)
    for reference in wire.referred(shown):
        at: Any = shown
        for step in reference.removeprefix("#/").split("/"):
            at = at[step]
        assert at
    for schema in shown["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


async def test_an_alias_is_the_same_operation(site: Site) -> None:
    paths = (await document(site))["paths"]
    names = [item["operationId"] for shown in paths.values() for item in shown.values()]
    assert len(names) == len(set(names))
    for row in ROWS.values():
        for method in (method.lower() for method in row["methods"]):
            shown = [paths[path][method] for path in row["paths"] if path in paths]
            assert all(one | {"operationId": ""} == shown[0] | {"operationId": ""} for one in shown)


async def test_an_optional_field_may_be_null(site: Site) -> None:
    schemas = (await document(site))["components"]["schemas"]
    fields = schemas["openai_chat"]["properties"]
    assert fields["temperature"]["type"] == ["number", "null"]
    assert fields["model"]["type"] == "string"
    assert {"type": "null"} in fields["tool_choice"]["anyOf"]


async def test_a_body_says_how_large_a_number_may_be(site: Site) -> None:
    seed = (await document(site))["components"]["schemas"]["openai_chat"]["properties"]["seed"]
    for value, is_fine in ((2**64 - 1, 200), (2**64, 400), (-(2**63), 200), (-(2**63) - 1, 400)):
        assert (seed["minimum"] <= value <= seed["maximum"]) is (is_fine == 200)
        assert (await site.post(BODY | {"seed": value})).status_code == is_fine


@pytest.mark.parametrize("name", ROWS)
async def test_a_row_says_what_it_takes_and_tells(name: str) -> None:
    row = ROWS[name]
    assert row["help"].endswith(".")
    assert any(int(status) < 300 for status in row["answers"]) or name == "refused"
    takes = bool({"POST", "PATCH", "PUT"} & set(row["methods"]))
    assert ("body" in row) is (takes and name not in WITHOUT_BODY)
    if "body" in row:
        assert not faults(asked(row["body"]), wire.read(row["body"])["examples"][0])
    assert ("path" in row) is any("<" in path for path in row["paths"])
    if "path" in row:
        parts = {part for path in row["paths"] for part in re.findall(r"<(\w+)", path)}
        assert set(wire.read(row["path"])["properties"]) == parts
    assert ("stream" in row) is (row["handler"] in STREAMS)


@pytest.mark.parametrize(
    "changed",
    [{"body": "openai_chatt"}, {"answers": {"200": "chat_complete"}}, {"stream": "chat_evnt"}],
)
async def test_a_schema_that_is_not_there_stops_the_start(changed: dict[str, Any]) -> None:
    row = ROWS["chat_completions"] | changed
    with pytest.raises(StartupError, match=r"nearest: (openai_chat|chat_completion|chat_event)$"):
        read_rows({"chat": row}, find_handlers())


SHOWN = {
    "/health": "health",
    "/v1/models": "models",
    "/v1/models/alias": "model",
    "/v1/settings/history": "settings_history",
    "/v1/streams/lookup": "stream_states",
    "/v1/internal/mtp-policy": "mtp_policy",
    "/openapi.json": "openapi",
    "/tools": "disabled",
    "/v1/chat/completions": "chat_completion",
    "/v1/completions": "text_completion",
    "/completion": "native_final",
    "/v1/chat/completions/input_tokens": "input_tokens",
    "/apply-template": "rendered",
    "/v1/chat/completions/control": "control_done",
    "/v1/responses": "response",
    "/v1/responses/input_tokens": "response_input_tokens",
    "/v1/responses/compact": "response_compaction",
}


@pytest.mark.parametrize("path", SHOWN)
async def test_an_answer_is_as_described(site: Site, path: str) -> None:
    bodies = {"/v1/streams/lookup": {}, "/v1/chat/completions/control": CONTROL}
    shown = operations(await document(site)) - {("/v1/responses", "get")}  # a WebSocket
    if (path, "get") in shown or path == "/v1/models/alias":
        reply = await site.http.get(path)
    else:
        reply = await site.http.post(path, json=bodies.get(path, BODY | PROMPT))
    assert reply.status_code in (200, 403)
    assert not faults(told(SHOWN[path]), reply.json())


CONTROL = {"id": "i", "action": "reasoning_end"}
PROMPT = {"prompt": "hi", "input": "hi"}


@pytest.mark.parametrize(
    ("path", "envelope", "status"),
    [
        ("/v1/chat/completions", "openai_error", 400),
        ("/completion", "native_error", 400),
        ("/v1/models/x", "openai_error", 404),
        ("/props", "llama_error", 501),
        ("/v1/conv_kv/save", "kamiwaza_error", 501),
        ("/v1/responses", "responses_error", 400),
        ("/v1/responses/x/cancel", "responses_error", 404),
        ("/nothing", "openai_error", 404),
    ],
)
async def test_an_error_is_as_described(
    start: Start, path: str, envelope: str, status: int
) -> None:
    site = await start(routes={"props": False})
    is_get = "models" in path
    reply = await (site.http.get(path) if is_get else site.http.post(path, json={}))
    assert reply.status_code == status
    assert not faults(told(envelope), reply.json())
