"""/v1/responses as a WebSocket: the same events, many responses on one connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mlxcel.core.errors import ErrorInfo
from mlxcel.core.events import ChoiceFinished, Failed, FinishReason, TextDelta
from tests.http.site import HELLO, Scripted, Site, Start, eventually
from tests.wire_schemas import faults
from tests.wire_schemas import told as schema

pytestmark = pytest.mark.asyncio

PATH = "/v1/responses"
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
Message = dict[str, Any]


class Caller:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, **fields: Any) -> None:
        message = {"type": "response.create", "model": "tiny", "input": "hi"} | fields
        sent = {name: value for name, value in message.items() if value is not ...}
        await self.connection.send(json.dumps(sent))

    async def next(self) -> Message:
        async with asyncio.timeout(5):
            text = await self.connection.recv()
        assert isinstance(text, str)
        message: Message = json.loads(text)
        is_error = message["type"] == "error"
        around = ("type", "status", "stream_id") if is_error else ("stream_id",)
        body = {name: value for name, value in message.items() if name not in around}
        assert not faults(schema("responses_error" if is_error else "response_data"), body)
        return message

    async def until(self, *kinds: str) -> list[Message]:
        found = [await self.next()]
        while found[-1]["type"] not in kinds:
            found.append(await self.next())
        return found

    async def rest(self) -> list[Message]:
        """Up to the end of the response that is told."""
        return await self.until(*ENDS)

    async def create(self, **fields: Any) -> Message:
        await self.send(**fields)
        last = (await self.rest())[-1]
        assert last["type"] == "response.completed", last
        response: Message = last["response"]
        return response

    async def refused(self, status: int = 400) -> Message:
        message = await self.next()
        assert (message["type"], message["status"]) == ("error", status), message
        error: Message = message["error"]
        return error

    async def closed(self) -> tuple[int | None, str | None]:
        async with asyncio.timeout(5):
            await self.connection.wait_closed()
        return self.connection.close_code, self.connection.close_reason


@asynccontextmanager
async def caller(site: Site, path: str = PATH, **more: Any) -> AsyncIterator[Caller]:
    how = {"close_timeout": 1, "ping_interval": None, "compression": None} | more
    async with dial(f"ws://{site.address}{path}", **how) as connection:
        yield Caller(connection)


def key(name: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {name}"}}


def asked(generator: Scripted) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in generator.requests[-1].chat.messages]


def bare(events: list[Message]) -> str:
    """Without what is made anew each time."""
    text = json.dumps(events)
    for event in events:
        response, item = event.get("response", {}), event.get("item", {})
        for own in (response.get("id"), item.get("id"), event.get("item_id")):
            text = text.replace(own, "id") if own else text
        for at in (response.get("created_at"), response.get("completed_at")):
            text = text.replace(str(at), "0") if at else text
    return text


async def test_it_tells_the_events_of_a_stream(site: Site) -> None:
    body = {"model": "tiny", "input": "hi", "stream": True}
    lines = (await site.http.post(PATH, json=body)).text.split("\n")
    streamed = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    async with caller(site) as ws, caller(site, "/responses") as alias:
        for one in (ws, alias, ws):
            await one.send(stream=None)
            assert bare(await one.rest()) == bare(streamed)


async def test_what_it_says_is_kept_as_told(site: Site) -> None:
    async with caller(site) as ws:
        made = await ws.create()
        assert (await site.http.get(f"{PATH}/{made['id']}")).json() == made
        unkept = await ws.create(store=False)
        assert (await site.http.get(f"{PATH}/{unkept['id']}")).status_code == 404
    async with caller(site) as ws:
        await ws.create(previous_response_id=made["id"], input="and?")
    assert asked(site.generator) == [("user", "hi"), ("assistant", "Hello"), ("user", "and?")]


async def test_the_last_response_is_gone_on_from_without_being_kept(site: Site) -> None:
    async with caller(site) as ws:
        first = await ws.create(store=False)
        second = await ws.create(store=False, previous_response_id=first["id"], input="two")
        await ws.create(previous_response_id=second["id"], input="three")
        assert asked(site.generator) == [
            *[("user", "hi"), ("assistant", "Hello"), ("user", "two"), ("assistant", "Hello")],
            ("user", "three"),
        ]
        await ws.send(previous_response_id=first["id"])
        error = await ws.refused()
        assert error["code"] == "previous_response_not_found"
        assert (error["param"], error["type"]) == ("previous_response_id", "invalid_request_error")
        async with caller(site) as other:
            await other.send(previous_response_id=second["id"])
            assert (await other.refused())["code"] == "previous_response_not_found"
        await ws.create()


async def test_where_nothing_is_kept_the_connection_remembers(start: Start) -> None:
    nothing = {"max_entries": 0, "max_bytes": 0, "ttl_secs": 0, "file": None}
    site = await start(responses_store=nothing)
    async with caller(site) as ws:
        first = await ws.create()
        await ws.create(previous_response_id=first["id"])
        assert len(asked(site.generator)) == 3
        await ws.send(previous_response_id="resp_0")
        assert (await ws.refused())["code"] == "previous_response_not_found"
    body = {"model": "tiny", "input": "hi", "previous_response_id": first["id"]}
    reply = await site.http.post(PATH, json=body)
    assert reply.json()["error"]["code"] == "previous_response_not_found"


async def test_what_failed_is_not_gone_on_from_again(site: Site, generator: Scripted) -> None:
    async with caller(site) as ws:
        for script, kind in (
            ([*HELLO[:2], RuntimeError("broken")], "response.failed"),
            ([RuntimeError("broken")], "error"),
            ([Failed(ErrorInfo(code="x", status=400, message="no"))], "error"),
        ):
            generator.script = list(HELLO)
            first = await ws.create(store=False)
            generator.script = list(script)
            await ws.send(previous_response_id=first["id"])
            assert (await ws.rest())[-1]["type"] == kind
            await ws.send(previous_response_id=first["id"])
            assert (await ws.refused())["code"] == "previous_response_not_found"


async def test_a_response_that_was_cancelled_takes_nothing_away(
    site: Site, generator: Scripted
) -> None:
    async with caller(site) as ws:
        first = await ws.create(store=False)
        generator.script = [*HELLO[:2], asyncio.Event()]
        await ws.send(previous_response_id=first["id"])
        id = (await ws.next())["response"]["id"]
        reply = await site.http.post(f"{PATH}/{id}/cancel")
        assert reply.json()["status"] == "cancelled"
        last = (await ws.rest())[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")
        generator.script = list(HELLO)
        await ws.create(previous_response_id=first["id"])


async def test_responses_of_one_stream_follow_each_other(site: Site, generator: Scripted) -> None:
    gate = asyncio.Event()
    generator.script = [*HELLO[:2], gate, *HELLO[2:]]
    async with caller(site) as ws:
        for text in ("one", "two", "three"):
            await ws.send(input=text)
        await ws.send(type="nothing")
        await ws.until("error")  # so all before it were taken as well
        assert [request.chat.messages[-1].text for request in generator.requests] == ["one"]
        gate.set()
        for _ in range(3):
            assert (await ws.rest())[-1]["sequence_number"] == 9
    assert [r.chat.messages[-1].text for r in generator.requests] == ["one", "two", "three"]


async def test_responses_of_several_streams_run_side_by_side(
    site: Site, generator: Scripted
) -> None:
    gate = asyncio.Event()
    async with caller(site) as ws:
        generator.script = [*HELLO[:2], gate, *HELLO[2:]]
        await ws.send(stream_id="a", store=False)
        begun = await ws.until("response.output_text.delta")
        assert {event["stream_id"] for event in begun} == {"a"}
        generator.script = list(HELLO)
        await ws.send(stream_id="b", input="b", store=False)
        await ws.send(stream_id="b", type="nothing")
        told = {event["type"]: event for event in await ws.until("response.completed", "error")}
        told |= {event["type"]: event for event in await ws.until("response.completed", "error")}
        assert {event["stream_id"] for event in told.values()} == {"b"}
        assert told["error"]["error"]["param"] == "type"
        # Another stream may go on from it.
        await ws.send(previous_response_id=told["response.completed"]["response"]["id"])
        assert "stream_id" not in (await ws.rest())[-1]
        assert len(asked(generator)) == 3
        gate.set()
        assert (await ws.rest())[-1]["stream_id"] == "a"


async def test_a_connection_has_so_many_streams_and_responses(
    site: Site, generator: Scripted
) -> None:
    async with caller(site) as ws:
        for number in range(32):
            await ws.create(stream_id=f"{number}")
        await ws.send(stream_id="32")
        assert (await ws.refused())["code"] == "websocket_stream_limit_reached"
        generator.script = [*HELLO[:2], asyncio.Event()]
        for _ in range(17):
            await ws.send()
        refusal = (await ws.until("error"))[-1]
        assert refusal["error"]["message"].startswith("16 responses run or wait")


async def test_a_warmup_reads_and_says_nothing(site: Site, generator: Scripted) -> None:
    generator.script = [*HELLO[:2], ChoiceFinished(FinishReason.LENGTH), HELLO[-1]]
    async with caller(site) as ws:
        await ws.send(generate=False, store=False, input=..., instructions="be brief")
        events = await ws.rest()
        kinds = ["response.created", "response.in_progress", "response.completed"]
        assert [event["type"] for event in events] == kinds
        warm = events[-1]["response"]
        assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
        assert asked(generator) == [("system", "be brief"), ("user", "")]
        assert generator.requests[-1].max_tokens == 1
        warm = await ws.create(generate=False, store=False, previous_response_id=warm["id"])
        assert asked(generator) == [("user", "hi")]
        generator.script = list(HELLO)
        await ws.create(generate=None, previous_response_id=warm["id"], input="two")
        assert asked(generator) == [("user", "hi"), ("user", "two")]
        assert generator.requests[-1].max_tokens > 1


WRONG: list[tuple[str | bytes | Message, str | None, str]] = [
    ("{", None, "the message is not JSON"),
    ("[]", None, "must be a JSON object, got array"),
    (b'{"type":"response.create"}', None, "this one is binary"),
    ("{}", "type", 'wants "response.create"'),
    ('{"type":"response.steer"}', "type", "response.steer"),
    ({"stream_id": 1}, "stream_id", "wants a string"),
    ({"stream_id": ""}, "stream_id", "wants 1 to 64"),
    ({"generate": 1}, "generate", "wants a boolean"),
    ({"background": True}, "background", "in the background"),
    ({"temperature": "x"}, "temperature", "wants a number"),
    ({"input": ...}, "input", "is required"),
]


async def test_what_cannot_be_read_is_told_and_the_connection_goes_on(site: Site) -> None:
    async with caller(site) as ws:
        for sent, param, says in WRONG:
            await (ws.send(**sent) if isinstance(sent, dict) else ws.connection.send(sent))
            error = await ws.refused()
            assert (error["param"], says in error["message"]) == (param, True), (sent, error)
        await ws.create()


async def test_whoever_does_not_wait_for_the_handshake_is_answered(site: Site) -> None:
    body = b'{"type":"response.create","model":"tiny","input":"hi"}'
    frame = bytes([0x81, 0x80 | len(body), 0, 0, 0, 0]) + body  # text, masked by nothing
    lines = (
        f"GET {PATH} HTTP/1.1",
        *("Host: x", "Connection: Upgrade", "Upgrade: websocket"),
        *("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""),
    )
    reader, writer = await site.connect()
    writer.write("\r\n".join(lines).encode() + frame)
    async with asyncio.timeout(5):
        await reader.readuntil(b'"type":"response.completed"')
    writer.close()


async def test_a_message_that_is_too_large_ends_the_connection(start: Start) -> None:
    site = await start(body_bytes=20_000)
    async with caller(site) as ws:
        await ws.create(input="x" * 19_000)
        with pytest.raises(ConnectionClosed):
            await ws.create(input="x" * 20_000)
        assert (await ws.closed())[0] == 1009


async def test_text_that_is_none_ends_the_connection(site: Site) -> None:
    async with caller(site) as ws:
        await ws.connection.send(b"\xff\xff", text=True)
        assert await ws.closed() == (1007, "text is UTF-8")


async def test_whoever_leaves_leaves_nothing_behind(site: Site, generator: Scripted) -> None:
    inflight = site.server._inflight
    for is_rude in (False, True):
        generator.script = [*HELLO[:2], asyncio.Event()]
        async with caller(site) as ws:
            await ws.send()
            await ws.send(input="waits")
            id = (await ws.next())["response"]["id"]
            assert len(inflight._open) == 1
            if is_rude:
                ws.connection.transport.abort()
            else:
                await ws.connection.close()
            async with asyncio.timeout(5):
                await generator.closed.wait()
        await eventually(lambda: not inflight._open)
        assert (await site.http.get(f"{PATH}/{id}")).status_code == 404
        assert generator.requests[-1].chat.messages[-1].text == "hi"


async def test_a_plain_request_is_told_to_upgrade(start: Start) -> None:
    site = await start(api_keys=["k"])
    reply = await site.http.get(PATH)
    assert reply.status_code == 401
    for sent in ({}, {"Connection": "Upgrade", "Upgrade": "h2c"}):
        headers = {"Authorization": "Bearer k", "X-Request-Id": "mine"} | sent
        reply = await site.http.get(PATH, headers=headers)
        assert (reply.status_code, reply.headers["Upgrade"]) == (426, "websocket")
        assert reply.headers["X-Request-Id"] == "mine"
        assert not faults(schema("responses_error"), reply.json())
    headers |= {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    reply = await site.http.get(PATH, headers=headers)
    assert reply.status_code == 400
    assert "Sec-WebSocket-Key" in reply.json()["error"]["message"]


async def test_a_handshake_wants_a_key_and_an_origin_that_may(start: Start) -> None:
    cors = {"methods": [], "headers": [], "expose": [], "credentials": True, "origins": None}
    site = await start(api_keys=["k"], cors=cors | {"allowed_origins": ["https://page.example"]})
    with pytest.raises(InvalidStatus) as refusal:
        await dial(f"ws://{site.address}{PATH}")
    assert refusal.value.response.status_code == 401
    with pytest.raises(InvalidStatus) as refusal:
        await dial(f"ws://{site.address}{PATH}", origin="https://evil.example", **key("k"))
    assert refusal.value.response.status_code == 403
    assert "evil.example" in json.loads(refusal.value.response.body)["error"]["message"]
    for origin in ("https://page.example", f"http://{site.address}"):
        async with caller(site, origin=origin, **key("k")) as ws:
            assert ws.connection.response is not None
            assert ws.connection.response.headers["X-Request-Id"].startswith("req_")
            await ws.create()


async def test_what_one_key_has_made_is_not_there_for_another(start: Start) -> None:
    site = await start(api_keys=["a", "b"])
    async with caller(site, **key("a")) as one, caller(site, **key("b")) as other:
        made = await one.create()
        for id in (made["id"], (await one.create(store=False))["id"]):
            await other.send(previous_response_id=id)
            error = await other.refused()
            assert error["code"] == "previous_response_not_found"
        await other.send(input=[{"type": "item_reference", "id": made["output"][0]["id"]}])
        assert (await other.refused())["param"].startswith("input")
        await one.create(previous_response_id=made["id"])


async def test_a_server_that_ends_lets_the_running_one_end_first(
    site: Site, generator: Scripted
) -> None:
    gate = asyncio.Event()
    generator.script = [*HELLO[:2], gate, *HELLO[2:]]
    async with caller(site) as ws, caller(site) as idle:
        await ws.send()
        await ws.next()
        await ws.send(input="waits")
        draining = asyncio.create_task(site.server.drain(5))
        assert (await idle.closed())[0] == 1001
        await ws.send(input="late")
        assert (await ws.until("error"))[-1]["status"] == 503
        gate.set()
        assert (await ws.rest())[-1]["type"] == "response.completed"
        assert (await ws.refused(503))["type"] == "unavailable_error"
        assert await ws.closed() == (1001, "unavailable")
        assert await draining == 0


async def test_a_connection_that_is_too_old_is_told_so(start: Start, generator: Scripted) -> None:
    site = await start(websocket_secs=0.5)
    gate = asyncio.Event()
    generator.script = [TextDelta("x"), gate, *HELLO[2:]]
    async with caller(site) as ws:
        await ws.send()
        await ws.next()
        await asyncio.sleep(0.55)
        await ws.send()
        gate.set()
        messages = [*await ws.rest(), *await ws.rest(), await ws.next()]
        kinds = [one["type"] for one in messages if one["type"] in ENDS]
        assert sorted(kinds) == ["error", "error", "response.completed"]
        assert messages[-1]["error"]["code"] == "websocket_connection_limit_reached"
        assert await ws.closed() == (1001, "websocket_connection_limit_reached")


async def test_without_a_model_there_is_no_connection(start: Start) -> None:
    site = await start(generate=None)
    with pytest.raises(InvalidStatus) as refusal:
        await dial(f"ws://{site.address}{PATH}")
    assert refusal.value.response.status_code == 501
