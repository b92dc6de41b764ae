"""Clients of the installed program that go at any event of their streams: the rows of the worker
are free again, and nothing is kept of what was not finished."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.http.cutting import END_OF_BODY, WAYS, Asked, Client
from tests.whole.program import Program

pytestmark = [pytest.mark.slow, pytest.mark.whole, pytest.mark.asyncio]

CALL = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
TAIL = CALL.replace("clock", "z" * 3000)
"""Takes longer to say than all the cuts, and nothing is told of it meanwhile."""
SCRIPT = {"^long$": f"Well, well. {CALL}{CALL}{TAIL}", "^short$": "Ok."}
DELAY_MS = 5
SILENCE_S = 1.0
"""Longer than a call takes that is not the last."""
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
FUNCTION = {"name": "clock", "parameters": NOTHING}
END = re.compile(rb"event: response\.completed|event: message_stop|\[DONE\]|\"stop\":true")
ID = re.compile(rb'"id":"(resp_\w+)"')
RESPONSES = "/v1/responses"


def responses(text: str) -> dict[str, Any]:
    tools = [{"type": "function", **FUNCTION}]
    return {"input": text, "tools": tools, "max_output_tokens": 3000, "conversation": "c"}


def messages(text: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": text}],
        "tools": [{"name": "clock", "input_schema": NOTHING}],
        "max_tokens": 3000,
    }


def chat(text: str) -> dict[str, Any]:
    return messages(text) | {"tools": [{"type": "function", "function": FUNCTION}]}


def completion(text: str) -> dict[str, Any]:
    return {"prompt": text, "n_predict": 3000}


ROUTES = {
    RESPONSES: responses,
    "/v1/messages": messages,
    "/v1/chat/completions": chat,
    "/completion": completion,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "responses.sqlite"


@pytest.fixture(scope="module")
def program(file: Path) -> Iterator[Program]:
    script = ", ".join(f"{{when: '{when}', say: '{say}'}}" for when, say in SCRIPT.items())
    words = (
        "model=echo",
        f"engine.script=[{script}]",
        f"engine.delay_ms={DELAY_MS}",
        "scheduler.parallel=64",
        f"limits.responses_store.file={file}",
    )
    with Program(*words) as running:
        yield running
        assert "Traceback" not in running.text
        assert "ERROR" not in running.text


async def frames_until_silence(client: Client) -> int:
    while True:
        before = client.frames
        try:
            async with asyncio.timeout(SILENCE_S):
                await client.read(before + 1)
        except TimeoutError:
            if before:
                return before


class Cuts:
    """Streams of one route, and what the program still has of them."""

    def __init__(self, program: Program, path: str, file: Path) -> None:
        self.program = program
        self.address = program.url.removeprefix("http://")
        self.path = path
        self._file = file
        self._front = psutil.Process(program.pid)

    async def ask(self, text: str) -> Client:
        asked = Asked(path=self.path, body=ROUTES[self.path](text), end=END)
        return await Client.ask(self.address, asked)

    async def cut(self, text: str, frames: int, way: str) -> Client:
        client = await self.ask(text)
        # A busy machine says more in one event: then there are fewer.
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                await client.read(frames)
        WAYS[way](client.sock)
        return client

    async def all(self, text: str, frames: int) -> list[Client]:
        """At each of these places, all at once."""
        ways = cycle(WAYS)
        return await asyncio.gather(
            *(self.cut(text, count, next(ways)) for count in range(frames + 1))
        )

    def connections(self) -> int:
        found = self._front.net_connections("tcp")
        return sum(one.status != psutil.CONN_LISTEN for one in found)

    def rows(self) -> dict[str, Any]:
        with closing(sqlite3.connect(self._file)) as db:
            rows = db.execute("SELECT id, data FROM responses").fetchall()
            homeless = db.execute(
                "SELECT count(*) FROM items WHERE response NOT IN (SELECT number FROM responses)"
            ).fetchone()
        assert homeless == (0,)
        return {id: json.loads(data)[1] for id, data in rows}

    def answered(self) -> int:
        """How many answers have come to their end, heard or not."""
        return int(self.program.health()["observability"]["sequences_completed"])

    def check_idle(self) -> None:
        self.program.await_health(batch__active_sequences=0, batch__queue_depth=0)
        assert not any(slot["is_processing"] for slot in self.program.get("/slots")[1])


@pytest.mark.parametrize("path", ROUTES)
async def test_a_cut_in_an_answer_frees_its_row(program: Program, file: Path, path: str) -> None:
    cuts = Cuts(program, path, file)
    before, answered, connections = cuts.rows(), cuts.answered(), cuts.connections()
    first = await cuts.ask("long")
    frames = 12 if path == "/completion" else await frames_until_silence(first)
    assert frames > 8
    first.sock.close()
    clients = await cuts.all("long", frames)
    cuts.check_idle()
    assert cuts.answered() == answered, "one has been said to its end"
    for client in clients:
        client.sock.close()
        assert not END.search(client.raw)
        for id in set(ID.findall(client.raw)):
            assert program.get(f"{RESPONSES}/{id.decode()}")[0] == 404
    assert cuts.rows() == before
    async with asyncio.timeout(5):
        while cuts.connections() > connections:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("path", ROUTES)
async def test_a_cut_near_the_end_keeps_all_or_nothing(
    program: Program, file: Path, path: str
) -> None:
    cuts = Cuts(program, path, file)
    before = cuts.rows()
    whole = await cuts.ask("short")
    await whole.rest(END_OF_BODY)
    clients = [whole, *await cuts.all("short", whole.frames)]
    cuts.check_idle()
    rows = cuts.rows()
    assert {body["output_text"] for body in rows.values()} <= {"Ok."}
    assert {body["status"] for body in rows.values()} <= {"completed"}
    told = [client for client in clients if END.search(client.raw)]
    assert whole in told
    for client in told:
        assert {id.decode() for id in ID.findall(client.raw)} <= set(rows) - set(before)
    for client in clients:
        client.sock.close()
