"""A client that takes just so many events of a stream and then goes, a generator that says just so
many, and what a server holds meanwhile."""

import asyncio
import json
import re
import socket
import sqlite3
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from mlxcel.core.events import Event
from mlxcel.core.request import GenerationRequest
from mlxcel.http.deps import Deps
from mlxcel.storage.responses import MemoryStore
from tests.http.site import Scripted, Site, eventually

END_OF_FRAME = b"\n\n"
"""Never inside of one: its data is JSON. Nor between chunks, nor after the head."""
END_OF_BODY = b"\r\n0\r\n\r\n"


SPINS = 500


async def soon(holds: Callable[[], object]) -> None:
    """As `eventually`, for what takes a few turns of the loop."""
    for _ in range(SPINS):
        if holds():
            return
        await asyncio.sleep(0)
    await eventually(holds)


class Held(Scripted):
    """Says the first `allowed` events of its script, and waits for more to be allowed: also for its
    end, after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.allowed = 0
        self._places: dict[object, int] = {}
        """Of each that runs: the event that it says next."""
        self._news = asyncio.Event()

    @property
    def running(self) -> int:
        return len(self._places)

    def allow(self, events: int) -> None:
        self.allowed = events
        self._news.set()
        self._news = asyncio.Event()

    def release(self) -> None:
        self.allow(len(self.events) + 1)

    async def holds(self, runs: int = 1) -> None:
        """Until all have said what they may: those who listen have asked for more, and so are
        done with it."""
        places = self._places.values
        await soon(lambda: list(places()) == [self.allowed] * runs)

    async def waits(self) -> None:
        """Until nobody has asked for more for a while."""
        turns, before = 0, None
        async with asyncio.timeout(5):
            while turns < 5:
                await asyncio.sleep(0.005)
                now = dict(self._places)
                turns, before = (turns + 1 if now and now == before else 0), now
        assert max(self._places.values()) < len(self.events)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.requests.append(request)
        run = object()
        try:
            for place, event in enumerate([*self.events, None]):
                self._places[run] = place
                while self.allowed <= place:
                    await self._news.wait()
                # As with a worker, each event takes a turn of the loop at least.
                await asyncio.sleep(0)
                if event is not None:
                    yield event
        finally:
            del self._places[run]


def fin(sock: socket.socket) -> None:
    sock.close()


def rst(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def half(sock: socket.socket) -> None:
    """Says that nothing more will be asked, and still listens."""
    sock.shutdown(socket.SHUT_WR)


WAYS: dict[str, Callable[[socket.socket], None]] = {"fin": fin, "rst": rst, "half": half}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a stream."""

    path: str
    body: Mapping[str, Any]
    end: re.Pattern[bytes]
    """What only a stream that ended well has."""
    runs: int = 1
    """What the generator is asked for."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        data = json.dumps({"model": "tiny", "stream": True} | dict(self.body)).encode()
        sent = {"Host": "x", "Content-Type": "application/json", **self.headers}
        lines = [f"POST {self.path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items())]
        return "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data


class Client:
    """One connection. What it has not read stays with the system, as with a client that is slow."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.raw = bytearray()

    @classmethod
    async def ask(cls, address: str, asked: Asked) -> Self:
        host, port = address.rsplit(":", 1)
        sock = socket.socket()
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (host, int(port)))
        await loop.sock_sendall(sock, asked.raw())
        return cls(sock)

    @property
    def frames(self) -> int:
        return self.raw.count(END_OF_FRAME)

    async def read(self, frames: int) -> None:
        """So many, and not a byte more."""
        await soon(lambda: self.frames == frames or self._take(frames))
        assert self.raw.startswith(b"HTTP/1.1 200") or not frames

    async def rest(self, end: bytes = b"") -> None:
        """What comes until `end`, or else until the server hangs up."""
        await soon(lambda: self._grab(65536) == b"" or (end and self.raw.endswith(end)))

    async def quiet(self) -> None:
        """What has been written so far: the server runs on this very loop."""
        silences = 0
        while silences < 3:
            await asyncio.sleep(0)
            silences = 0 if self._grab(65536) else silences + 1

    def _take(self, frames: int) -> bool:
        try:
            seen = self.raw + self.sock.recv(65536, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        assert len(seen) > len(self.raw), "the server has hung up"
        at = -1
        for _ in range(frames):
            at = seen.find(END_OF_FRAME, at + 1)
            if at < 0:
                break
        wanted = len(seen) if at < 0 else at + len(END_OF_FRAME)
        self._grab(wanted - len(self.raw))
        return self.frames == frames

    def _grab(self, size: int) -> bytes | None:
        """None: there is nothing yet; empty: there will be nothing."""
        try:
            data = self.sock.recv(size)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""
        self.raw += data
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A stream that was read to its end."""

    raw: bytes
    steps: list[int]
    """By number of frames: how many events it takes until so many are written."""

    @property
    def frames(self) -> int:
        return len(self.steps) - 1


async def read_whole(site: Site, asked: Asked) -> Whole:
    """Event by event. Frames that this overlooks are taken for those of the next event: then a
    cut at them comes a little later than it could."""
    generator = held(site)
    generator.allow(0)
    client = await Client.ask(site.address, asked)
    steps = [0]
    for allowed in range(len(generator.events) + 1):
        generator.allow(allowed)
        await generator.holds(asked.runs)
        await client.quiet()
        steps += [allowed] * (client.frames - len(steps) + 1)
    generator.release()
    await client.rest(END_OF_BODY)
    assert client.frames == len(steps) - 1, "nothing comes after the last event"
    assert asked.end.search(client.raw)
    client.sock.close()
    await soon(lambda: not generator.running)
    return Whole(raw=bytes(client.raw), steps=steps)


def held(site: Site) -> Held:
    assert isinstance(site.generator, Held)
    return site.generator


def deps_of(site: Site) -> Deps:
    return site.server._deps


def busy(site: Site) -> dict[str, object]:
    """All that a server holds for a stream that is open."""
    deps, server = deps_of(site), site.server._server
    assert server is not None
    return {
        "tasks": set(asyncio.all_tasks()),
        "rows": held(site).running,
        "inflight": set(deps.inflight._open),
        "live": dict(deps.live._answers),
        "streams": dict(deps.streams._sessions),
        "connections": set(server.connections),
    }


async def settled(site: Site, before: Mapping[str, object]) -> None:
    """Until the server holds what it held before."""
    try:
        await soon(lambda: busy(site) == before)
    except TimeoutError:
        now = busy(site)
        left = {name: (before[name], now[name]) for name in now if now[name] != before[name]}
        raise AssertionError(f"it is not as it was: {left}") from None


Kept = tuple[dict[str, bytes], dict[str, bytes], set[Any]]
"""Responses by id, transcripts by name, and the responses that items are found in."""


async def kept(site: Site, file: Path | None = None) -> Kept:
    deps = deps_of(site)
    # What was put before it is there when this is answered.
    await deps.responses.get("", "none")
    texts = {name: one.value for (_, name), one in deps.transcripts._shelf._entries.items()}
    if file is None:
        store = deps.responses
        assert isinstance(store, MemoryStore)
        rows = {id: entry.value for (_, id), entry in store._shelf._entries.items()}
        homes = set(store._homes.values()) | {id for _, id in store._item_ids}
        return rows, texts, homes
    with closing(sqlite3.connect(file)) as db:
        rows = dict(db.execute("SELECT id, data FROM responses"))
        found = db.execute("SELECT id FROM items LEFT JOIN responses ON number = response")
        return rows, texts, {id for (id,) in found}
