"""/v1/responses over HTTP: what is kept, found, gone on from, ended."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    TextDelta,
    ToolCallDelta,
)
from mlxcel.core.request import GenerationRequest
from mlxcel.protocols.responses.sealed import opened
from tests.http.site import HELLO, TIMINGS, USAGE, Scripted, Site, Start, eventually
from tests.wire_schemas import faults, told

pytestmark = pytest.mark.asyncio

PATH = "/v1/responses"
CALL = ToolCallDelta(index=0, call_id="call_0123456789abcdef", name="f", arguments='{"a":1}')
TOOL = {"type": "function", "name": "f"}
CALLING: list[Event] = [
    Accepted(3),
    CALL,
    ChoiceFinished(FinishReason.TOOL_CALLS),
    Finished(usage=USAGE, timings=TIMINGS),
]
CUT: list[Event] = [
    Accepted(3),
    TextDelta("Hel"),
    ChoiceFinished(FinishReason.LENGTH),
    Finished(usage=USAGE, timings=TIMINGS),
]


async def post(site: Site, path: str = PATH, **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", None)
    body = {"model": "tiny", "input": "hi"} | fields
    body = {name: value for name, value in body.items() if value is not ...}
    return await site.http.post(path, json=body, headers=headers)


async def create(site: Site, **fields: Any) -> dict[str, Any]:
    reply = await post(site, **fields)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    assert not faults(told("response"), body)
    return body


def events(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.split("\n") if line.startswith("data: ")]
    found = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert not [fault for event in found for fault in faults(told("response_data"), event)]
    return found


def said(request: GenerationRequest) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in request.chat.messages]


def refusal(reply: httpx.Response, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert not faults(told("responses_error"), reply.json())
    error: dict[str, Any] = reply.json()["error"]
    return error


def off(what: str) -> dict[str, Any]:
    """Options that keep nothing of it."""
    return {f"{what}_store": {"max_entries": 0, "max_bytes": 99, "ttl_secs": 60, "file": None}}


async def test_it_is_kept_as_it_was_told(site: Site) -> None:
    made = await create(site)
    assert made["output_text"] == "Hello"
    assert made["id"].startswith("resp_")
    for path in (PATH, "/responses"):
        reply = await site.http.get(f"{path}/{made['id']}")
        assert (reply.status_code, reply.json()) == (200, made)


async def test_a_stream_is_kept_as_its_last_event_told(site: Site) -> None:
    reply = await post(site, stream=True)
    last = events(reply.text)[-1]
    assert last["type"] == "response.completed"
    assert "[DONE]" not in reply.text
    kept = await site.http.get(f"{PATH}/{last['response']['id']}")
    assert kept.json() == last["response"]
    assert reply.headers["X-Request-Id"] == last["response"]["id"]


async def test_one_that_a_limit_has_cut_is_kept(site: Site, generator: Scripted) -> None:
    generator.script = list(CUT)
    made = await create(site)
    assert made["status"] == "incomplete"
    assert (await site.http.get(f"{PATH}/{made['id']}")).json() == made


async def test_what_is_not_to_be_kept_is_not(site: Site) -> None:
    made = await create(site, store=False, conversation="c")
    refusal(await site.http.get(f"{PATH}/{made['id']}"), 404)
    await create(site, conversation="c")
    assert said(site.generator.requests[-1]) == [("user", "hi")]


async def test_what_failed_is_not_kept(site: Site, generator: Scripted) -> None:
    generator.script = [*HELLO[:2], RuntimeError("broken")]
    last = events((await post(site, stream=True)).text)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "server_error"
    refusal(await site.http.get(f"{PATH}/{last['response']['id']}"), 404)
    refusal(await post(site), 500)


async def test_whoever_leaves_leaves_nothing_behind(site: Site, generator: Scripted) -> None:
    generator.script = [*HELLO[:2], asyncio.Event(), *HELLO[2:]]
    body = {"model": "tiny", "input": "hi", "stream": True}
    async with site.http.stream("POST", PATH, json=body) as reply:
        first = await anext(reply.aiter_lines())
        assert first == "event: response.created"
    async with asyncio.timeout(5):
        await generator.closed.wait()
    refusal(await site.http.get(f"{PATH}/{generator.requests[-1].id}"), 404)


async def test_a_chain_is_told_whole_and_in_order(site: Site, generator: Scripted) -> None:
    generator.script = list(CALLING)
    first = await create(site, input="weather?", tools=[TOOL], instructions="be brief")
    generator.script = list(HELLO)
    answer = {"type": "function_call_output", "call_id": first["output"][0]["call_id"]}
    second = await create(
        site, input=[answer | {"output": "rain"}], previous_response_id=first["id"]
    )
    await create(site, input="and now?", previous_response_id=second["id"])
    messages = generator.requests[-1].chat.messages
    assert said(generator.requests[-1]) == [
        ("user", "weather?"),
        ("assistant", ""),
        ("tool", "rain"),
        ("assistant", "Hello"),
        ("user", "and now?"),
    ]
    assert [call.arguments for call in messages[1].calls] == ['{"a":1}']
    assert messages[1].calls[0].id == messages[2].call_id


async def test_a_conversation_is_told_whole(site: Site, generator: Scripted) -> None:
    made = await create(site, conversation="c", input="one")
    assert made["conversation"] == "c"
    await create(site, conversation={"id": "c"}, input="two")
    assert said(generator.requests[-1]) == [
        ("user", "one"),
        ("assistant", "Hello"),
        ("user", "two"),
    ]
    assert (await site.http.delete(f"{PATH}/{made['id']}")).json()["deleted"]
    await create(site, conversation="c", input="three")
    assert len(said(generator.requests[-1])) == 5


@pytest.mark.parametrize("stream", [False, True])
async def test_one_it_goes_on_from_has_to_be_there(site: Site, stream: bool) -> None:
    error = refusal(await post(site, previous_response_id="resp_0", stream=stream), 400)
    assert error["param"] == "previous_response_id"
    assert site.generator.requests == []


async def test_what_is_wrong_is_told_before_what_is_missing(site: Site) -> None:
    error = refusal(await post(site, previous_response_id="resp_0", background=True), 400)
    assert error["param"] == "background"


async def test_an_item_can_be_named(site: Site, generator: Scripted) -> None:
    first = await create(site, input="one")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    again = {"role": "user", "content": "two"}
    made = await create(site, input=[reference, again])
    assert said(generator.requests[-1]) == [("assistant", "Hello"), ("user", "two")]
    items = (await site.http.get(f"{PATH}/{made['id']}/input_items?order=asc")).json()
    assert items["data"][0] == first["output"][0]
    refusal(await post(site, input=[reference | {"id": "msg_0"}, again]), 400)


async def test_owners_share_nothing(start: Start) -> None:
    site = await start(api_keys=["one", "two"])
    ours, theirs = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    made = await create(site, headers=ours, conversation="c")
    path = f"{PATH}/{made['id']}"
    refusal(await site.http.get(path, headers=theirs), 404)
    refusal(await site.http.get(f"{path}/input_items", headers=theirs), 404)
    refusal(await site.http.post(f"{path}/cancel", headers=theirs), 404)
    refusal(await post(site, previous_response_id=made["id"], headers=theirs), 400)
    named = [{"type": "item_reference", "id": made["output"][0]["id"]}]
    refusal(await post(site, input=named, headers=theirs), 400)
    assert not (await site.http.delete(path, headers=theirs)).json()["deleted"]
    await create(site, conversation="c", input="x", headers=theirs)
    assert said(site.generator.requests[-1]) == [("user", "x")]
    assert (await site.http.get(path, headers=ours)).json() == made


async def test_it_can_be_deleted(site: Site) -> None:
    made = await create(site)
    for was_there in (True, False):
        reply = await site.http.delete(f"{PATH}/{made['id']}")
        assert reply.json() == {
            "id": made["id"],
            "object": "response.deleted",
            "deleted": was_there,
        }
        assert not faults(told("response_deleted"), reply.json())
    error = refusal(await site.http.get(f"{PATH}/{made['id']}"), 404)
    assert error["type"] == "not_found"


async def test_cancelling_one_that_has_ended_marks_it(site: Site) -> None:
    made = await create(site)
    reply = await site.http.post(f"{PATH}/{made['id']}/cancel")
    assert reply.json() == made | {"status": "cancelled"}
    assert not faults(told("response_cancelled"), reply.json())
    assert (await site.http.get(f"{PATH}/{made['id']}")).json()["status"] == "cancelled"
    assert refusal(await site.http.post(f"{PATH}/resp_0/cancel"), 404)["type"] == "not_found"


@pytest.mark.parametrize("headers", [{}, {"X-Conversation-Id": "c"}], ids=["plain", "kept"])
@pytest.mark.parametrize("store", [True, False])
async def test_cancelling_one_that_runs_ends_it(
    site: Site, generator: Scripted, headers: dict[str, str], store: bool
) -> None:
    generator.script = [*HELLO[:2], asyncio.Event(), *HELLO[2:]]
    task = asyncio.ensure_future(post(site, stream=True, store=store, headers=headers))
    await eventually(lambda: generator.yielded == 2)
    id = generator.requests[-1].id
    reply = await site.http.post(f"{PATH}/{id}/cancel")
    assert reply.json() == {"id": id, "object": "response", "status": "cancelled"}
    assert not faults(told("response_cancelled"), reply.json())
    last = events((await task).text)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "cancelled"
    assert last["response"]["error"] is None
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert generator.closed.is_set()
    refusal(await site.http.get(f"{PATH}/{id}"), 404)
    refusal(await site.http.post(f"{PATH}/{id}/cancel"), 404)


async def test_cancel_ends_no_chat(site: Site, generator: Scripted) -> None:
    gate = asyncio.Event()
    generator.script = [*HELLO[:2], gate, *HELLO[2:]]
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    task = asyncio.ensure_future(site.post(chat))
    await eventually(lambda: generator.yielded == 2)
    refusal(await site.http.post(f"{PATH}/{generator.requests[-1].id}/cancel"), 404)
    gate.set()
    assert "[DONE]" in (await task).text


async def test_nobody_cancels_what_another_runs(start: Start, generator: Scripted) -> None:
    site = await start(api_keys=["one", "two"])
    ours, theirs = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    gate = asyncio.Event()
    generator.script = [*HELLO[:2], gate, *HELLO[2:]]
    task = asyncio.ensure_future(post(site, stream=True, headers=ours))
    await eventually(lambda: generator.yielded == 2)
    id = generator.requests[-1].id
    refusal(await site.http.post(f"{PATH}/{id}/cancel", headers=theirs), 404)
    gate.set()
    assert events((await task).text)[-1]["type"] == "response.completed"


async def listed(site: Site, id: str, query: str = "") -> dict[str, Any]:
    reply = await site.http.get(f"{PATH}/{id}/input_items{query}")
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    assert not faults(told("response_items"), body)
    return body


async def test_input_items(site: Site) -> None:
    texts = ["a", "b", "c"]
    sent = [{"role": "user", "content": text} for text in texts]
    made = await create(site, input=sent)
    all_of_them = await listed(site, made["id"])
    assert [item["content"][0]["text"] for item in all_of_them["data"]] == ["c", "b", "a"]
    assert not all_of_them["has_more"]
    ids = [item["id"] for item in reversed(all_of_them["data"])]
    page = await listed(site, made["id"], "?order=asc&limit=2")
    assert [item["id"] for item in page["data"]] == ids[:2]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (ids[0], ids[1], True)
    rest = await listed(site, made["id"], f"?order=asc&limit=2&after={ids[1]}")
    assert [item["id"] for item in rest["data"]] == ids[2:]
    none = await listed(site, made["id"], f"?order=asc&after={ids[2]}")
    assert (none["data"], none["first_id"], none["last_id"]) == ([], None, None)


async def test_input_items_of_every_kind(site: Site) -> None:
    made = await create(
        site,
        input=[
            {"role": "developer", "content": "d", "name": "n"},
            {"type": "reasoning", "summary": [], "content": [{"text": "hm"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "x", "y": 1}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"type": "compaction", "encrypted_content": "b64:aGk="},
        ],
    )
    assert len((await listed(site, made["id"]))["data"]) == 6


@pytest.mark.parametrize(
    "query",
    *[["limit=0", "limit=101", "limit=x", "limit=1.5", "limit=-1", "order=up", "after=msg_0"]],
)
async def test_a_page_that_cannot_be(site: Site, query: str) -> None:
    made = await create(site)
    error = refusal(await site.http.get(f"{PATH}/{made['id']}/input_items?{query}"), 400)
    assert error["param"] == query.split("=")[0]


async def test_counting_follows_the_history_and_keeps_nothing(site: Site) -> None:
    made = await create(site, conversation="c")
    before = len(site.generator.requests)
    counted: list[GenerationRequest] = []
    count = site.generator.count

    async def noting(request: GenerationRequest) -> int:
        counted.append(request)
        return await count(request)

    site.generator.count = noting  # type: ignore[method-assign]
    for history in ({"previous_response_id": made["id"]}, {"conversation": "c"}):
        reply = await post(site, f"{PATH}/input_tokens", model=..., input="two", **history)
        assert reply.json() == {"object": "response.input_tokens", "input_tokens": 3}
        assert said(counted[-1]) == [("user", "hi"), ("assistant", "Hello"), ("user", "two")]
    assert len(site.generator.requests) == before
    await create(site, conversation="c", input="x")
    assert len(said(site.generator.requests[-1])) == 3


async def test_turns_are_summed_up_and_the_summary_read_again(
    site: Site, generator: Scripted
) -> None:
    first = await create(site, input="one")
    fields = {"input": ..., "instructions": "in French", "tools": [TOOL], "stream": True}
    reply = await post(site, f"{PATH}/compact", previous_response_id=first["id"], **fields)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert not faults(told("response_compaction"), body)
    asked = generator.requests[-1]
    assert said(asked)[:2] == [("user", "one"), ("assistant", "Hello")]
    assert asked.chat.messages[2].text.endswith("in French")
    assert (asked.sampling.temperature, asked.thinking_budget) == (0, 0)
    assert asked.chat.tools == ()
    item = body["output"][0]
    assert (opened(item["encrypted_content"]) or "").endswith("Hello")
    refusal(await site.http.get(f"{PATH}/{body['id']}"), 404)
    await create(site, input=[item, {"role": "user", "content": "go on"}])
    roles = [role for role, _ in said(generator.requests[-1])]
    assert roles == ["system", "user"]
    assert "Hello" in said(generator.requests[-1])[0][1]


@pytest.mark.parametrize(
    "fields",
    [
        {"input": ...},
        {"input": []},
        {"input": " "},
        {"model": ...},
        {"instructions": 5},
        {"previous_response_id": "resp_0"},
    ],
    ids=str,
)
async def test_turns_that_cannot_be_summed_up(site: Site, fields: dict[str, Any]) -> None:
    refusal(await post(site, f"{PATH}/compact", **fields), 400)
    assert site.generator.requests == []


async def test_a_summary_that_says_nothing_is_none(site: Site, generator: Scripted) -> None:
    generator.script = [HELLO[0], *HELLO[3:]]
    assert "empty" in refusal(await post(site, f"{PATH}/compact"), 500)["message"]


async def test_fixed_paths_are_no_ids(site: Site) -> None:
    for path in ("compact", "input_tokens"):
        assert (await site.http.get(f"{PATH}/{path}")).status_code == 405
        assert (await site.http.delete(f"{PATH}/{path}")).status_code == 405


async def test_without_a_store(start: Start) -> None:
    site = await start(**off("responses"))
    made = await create(site, conversation="c")
    path = f"{PATH}/{made['id']}"
    for reply in (
        await site.http.get(path),
        await site.http.delete(path),
        await site.http.post(f"{path}/cancel"),
        await site.http.get(f"{path}/input_items"),
        await post(site, previous_response_id=made["id"]),
    ):
        assert "limits.responses_store" in refusal(reply, 400)["message"]
    await create(site, conversation="c")
    assert len(said(site.generator.requests[-1])) == 3


async def test_without_conversations(start: Start) -> None:
    site = await start(**off("conversation"))
    error = refusal(await post(site, conversation="c"), 400)
    assert error["param"] == "conversation"
    await create(site)


async def test_a_file_outlives_the_server(start: Start, tmp_path: Path) -> None:
    bounds = {"max_entries": 9, "max_bytes": 99_999, "ttl_secs": 60}
    kept = {"responses_store": bounds | {"file": str(tmp_path / "kept.sqlite")}}
    first = await start(**kept)
    made = await create(first)
    await first.server.stop()
    second = await start(**kept)
    assert (await second.http.get(f"{PATH}/{made['id']}")).json() == made
    await create(second, previous_response_id=made["id"], input="two")
    assert len(said(second.generator.requests[-1])) == 3


async def test_tools_that_are_left_out_are_named(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = ["web_search", "odd\r\nX-Evil: 1", "web_search"]
    tools = [TOOL, *({"type": kind} for kind in kinds)]
    for _ in range(2):
        reply = await post(site, tools=tools)
        assert reply.headers["X-Ignored-Tools"] == "web_search, odd__X-Evil:_1"
        assert "X-Evil" not in reply.headers
    assert [tool["type"] for tool in reply.json()["tools"]] == ["function", *kinds]
    stream = await post(site, tools=tools, stream=True)
    assert stream.headers["X-Ignored-Tools"].startswith("web_search")
    assert "X-Ignored-Tools" not in (await post(site, tools=[TOOL])).headers
    assert caplog.text.count("'web_search' cannot be run") <= 1


async def test_tools_that_are_left_out_may_be_refused(start: Start) -> None:
    site = await start(routes={"strict_tools": True})
    error = refusal(await post(site, tools=[TOOL, {"type": "web_search"}]), 400)
    assert error["param"] == "tools[1].type"


async def test_many_at_once_keep_their_own(site: Site) -> None:
    made = await asyncio.gather(*(create(site, input=f"n{n}") for n in range(8)))
    for n, one in enumerate(made):
        items = await listed(site, one["id"])
        assert items["data"][0]["content"][0]["text"] == f"n{n}"
