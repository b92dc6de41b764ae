"""The streams that are cut, and what must be true of a server after each cut."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlxcel.core.events import Accepted, Event, Started
from mlxcel.storage.responses import unpacked
from tests.http.cutting import (
    WAYS,
    Asked,
    Client,
    Kept,
    Whole,
    busy,
    held,
    kept,
    read_whole,
    settled,
)
from tests.http.site import Site

RESPONSES = "/v1/responses"
NAME = {"X-Conversation-Id": "n"}
NAMED: dict[str, Any] = {"params": {"conv_id": "n"}}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
ENDED = re.compile(rb"event: response\.(in)?complete")
DONE = re.compile(rb"data: \[DONE\]")
ROUTES = {
    "responses": Asked(path=RESPONSES, body={"input": "hi"}, end=ENDED),
    "conversation": Asked(path=RESPONSES, body={"input": "hi", "conversation": "c"}, end=ENDED),
    "previous": Asked(path=RESPONSES, body={"input": "hi", "previous_response_id": ""}, end=ENDED),
    "messages": Asked(path="/v1/messages", body=CHAT, end=re.compile(rb"event: message_stop")),
    "chat": Asked(
        path="/v1/chat/completions",
        body=CHAT | {"stream_options": {"include_usage": True}},
        end=DONE,
    ),
    "completions": Asked(path="/v1/completions", body={"prompt": ["a", "b"]}, end=DONE, runs=2),
    "llama": Asked(path="/completion", body={"prompt": "hi"}, end=re.compile(rb'"stop":true')),
}
BEGIN: list[Event] = [Accepted(3), Started(queued_ms=1, prompt_ms=1)]


class Cutter:
    """Asks for the same stream again and again, and leaves at another place each time."""

    def __init__(self, site: Site, asked: Asked, said: list[Event], file: Path | None) -> None:
        self.site = site
        self.asked = asked
        self.generator = held(site)
        self.generator.events = [*BEGIN, *said]
        self.whole = Whole(raw=b"", steps=[0])
        self.idle = busy(site)
        self._file = file

    @property
    def id(self) -> str:
        return self.generator.requests[-1].id

    async def begin(self) -> None:
        """What is kept before: a response, and a turn of a conversation."""
        self.generator.release()
        body = {"model": "tiny", "input": "first", "conversation": "c"}
        first = (await self.site.http.post(RESPONSES, json=body)).json()
        if "previous_response_id" in self.asked.body:
            more = {"previous_response_id": first["id"]}
            self.asked = replace(self.asked, body=self.asked.body | more)
        self.whole = await read_whole(self.site, self.asked)
        await self.forget()
        await settled(self.site, self.idle)

    async def forget(self) -> None:
        """The stream that has a name, if it has one."""
        if self.asked.headers:
            reply = await self.site.http.delete("/v1/stream", **NAMED)
            assert reply.status_code == 204

    async def kept(self) -> Kept:
        return await kept(self.site, self._file)

    def has_ended(self, frames: int) -> bool:
        """Whether the last event is out when so many frames are."""
        return self.whole.steps[frames] == len(self.generator.events)

    async def read(self, frames: int) -> Client:
        self.generator.allow(self.whole.steps[frames])
        client = await Client.ask(self.site.address, self.asked)
        await self.generator.holds(self.asked.runs)
        await client.read(frames)
        return client

    async def cut(self, frames: int, way: str) -> None:
        known = await self.kept()
        client = await self.read(frames)
        WAYS[way](client.sock)
        await settled(self.site, self.idle)
        has_ended = self.has_ended(frames)
        await self.check(known, is_kept=has_ended)
        if way == "half":
            await client.rest()
            assert bool(self.asked.end.search(client.raw)) == has_ended
            client.sock.close()

    async def check(self, known: Kept, *, is_kept: bool) -> None:
        """All of the last answer is kept, or nothing of it."""
        if not is_kept or self.asked.path != RESPONSES:
            assert await self.kept() == known
        else:
            await self._check_whole(known, self.id)

    async def check_found(self, *, is_kept: bool) -> None:
        """As clients see it."""
        if self.asked.path != RESPONSES:
            return
        shown = await self.site.http.get(f"{RESPONSES}/{self.id}")
        more = {"model": "tiny", "input": "go on", "previous_response_id": self.id, "store": False}
        self.generator.release()
        followed = await self.site.http.post(RESPONSES, json=more)
        found = (shown.status_code, followed.status_code)
        assert found == ((200, 200) if is_kept else (404, 400))

    async def _check_whole(self, known: Kept, id: str) -> None:
        rows, texts, homes = await self.kept()
        shown = unpacked("", id, rows[id]).body
        assert alike(shown) == alike(data_of(self.whole.raw)[-1]["response"])
        assert rows == known[0] | {id: rows[id]}
        assert homes == known[2] | {id}
        name = self.asked.body.get("conversation")
        if name is None:
            assert texts == known[1]
            return
        assert texts == known[1] | {name: texts[name]}
        turn = [json.loads(line) for line in texts[name].removeprefix(known[1][name]).splitlines()]
        assert turn[1:] == shown["output"]
        assert turn[0]["role"] == "user"


def data_of(raw: bytes | bytearray) -> list[Any]:
    lines = (line for line in raw.split(b"\n") if line.startswith(b"data: {"))
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def alike(value: Any) -> Any:
    """Without what no two answers share: ids and times."""
    text = re.sub(r"\b([a-z]+)_[0-9a-f]{16,}", r"\1_", json.dumps(value))
    text = re.sub(r'"(created\w*|completed_at)": \d+', r'"\1": 0', text)
    return json.loads(re.sub(r"chatcmpl-[\w-]+", "", text))


async def cutter(
    site: Site, route: str, said: list[Event], file: Path | None = None, **how: Any
) -> Cutter:
    asked = replace(ROUTES[route], **how)
    made = Cutter(site, asked, said, file)
    await made.begin()
    return made
