"""Sends hostile requests to a running server, eight at a time, and judges every answer."""

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice, product
from random import Random
from urllib.parse import urlsplit

import psutil

from tests.whole import fuzz_bodies, fuzz_wire
from tests.whole.fuzz_attacks import KINDS, Attack, Ending
from tests.whole.fuzz_reader import AnswerReader, Cut, HttpAnswer, Malformed
from tests.whole.fuzz_targets import Target, all_targets
from tests.whole.fuzz_verdict import verdict
from tests.whole.program import Program

CLIENTS = 8
PATIENCE_S = 20.0
HEALTH = b"GET /health HTTP/1.1\r\nHost: fuzz\r\n\r\n"
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing is a reset."""
SOURCES = (fuzz_bodies, fuzz_wire)
"""They fill KINDS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    attack: Attack
    reason: str
    answer: HttpAnswer | None = None

    def __str__(self) -> str:
        sent = b"".join(piece for piece in self.attack.pieces if isinstance(piece, bytes))
        got = "" if self.answer is None else f"\n   {self.answer.status} {self.answer.body[:400]!r}"
        shown = sent if len(sent) <= 700 else sent[:350] + b" ... " + sent[-350:]
        return (
            f"{self.attack.kind}, {self.attack.target.row}: {self.reason}{got}\n   after {shown!r}"
        )


@dataclass(slots=True)
class Tally:
    """What came of all attacks; one thread adds."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and outcome: a status, or how the connection ended without one."""
    failures: list[Failure] = field(default_factory=list)
    rows: dict[str, set[str]] = field(default_factory=dict)
    """The route rows of each outcome."""
    unserved: set[str] = field(default_factory=set)
    """Rows that answer 501 to what is right."""

    def add(self, attack: Attack, outcomes: Sequence[str], failure: Failure | None) -> None:
        for outcome in outcomes:
            self.counts[attack.kind, outcome] += 1
            self.rows.setdefault(outcome, set()).add(attack.target.row)
            if attack.kind == "intact" and outcome == "501":
                self.unserved.add(attack.target.row)
        if failure is not None:
            self.failures.append(failure)

    def table(self) -> str:
        columns = sorted({outcome for _, outcome in self.counts})
        lines = [f"{'kind':18}" + "".join(f"{name:>7}" for name in columns)]
        for name in sorted({name for name, _ in self.counts}):
            cells = "".join(f"{self.counts[name, column] or '.':>7}" for column in columns)
            lines.append(f"{name:18}{cells}")
        total = [sum(self.counts[name, column] for name in KINDS) for column in columns]
        return "\n".join([*lines, f"{'all':18}" + "".join(f"{count:>7}" for count in total)])


def attacks(seed: int, targets: Sequence[Target]) -> Iterator[Attack]:
    """Without end: what is right on all targets, which shows what this server does not serve;
    then all kinds on all targets, in one order after the other."""
    rng = Random(seed)
    for target in targets:
        yield replace(KINDS["intact"](rng, target), kind="intact")
    pairs = list(product(KINDS.items(), targets))
    while True:
        rng.shuffle(pairs)
        for (name, make), target in pairs:
            yield replace(make(rng, target), kind=name)


class Fuzzer:
    """Attacks one server, in rounds."""

    def __init__(self, program: Program, *, seed: int, key: str | None = None) -> None:
        address = urlsplit(program.url)
        assert address.hostname is not None
        assert address.port is not None
        self._address = (address.hostname, address.port)
        targets = all_targets(key)
        self.pairs = len(targets) * (1 + len(KINDS))
        self._attacks = attacks(seed, targets)
        self.tally = Tally()
        self.sent = 0

    def round(self, pool: ThreadPoolExecutor, count: int) -> Iterator[None]:
        """Starts so many, yields while they run, and waits for their end."""
        chosen = list(islice(self._attacks, count))
        running = pool.map(self._attempt, chosen)
        yield
        for attack, (outcomes, failure) in zip(chosen, running, strict=True):
            self.tally.add(attack, outcomes, failure)
        self.sent += count

    def _attempt(self, attack: Attack) -> tuple[list[str], Failure | None]:
        outcomes: list[str] = []
        try:
            with closing(socket.create_connection(self._address, PATIENCE_S)) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                failure = self._exchange(sock, attack, outcomes)
        except Malformed as error:
            return [*outcomes, "broken"], Failure(attack=attack, reason=str(error))
        except TimeoutError:
            return [*outcomes, "silent"], Failure(attack=attack, reason="no answer in time")
        return outcomes, failure

    def _exchange(self, sock: socket.socket, attack: Attack, outcomes: list[str]) -> Failure | None:
        reader = AnswerReader(sock)
        try:
            self._send(sock, reader, attack)
            if attack.ending is Ending.RESET:
                _reset(sock, attack.bytes_read)
                outcomes.append("left")
                return None
            if attack.ending is Ending.HALF:
                sock.shutdown(socket.SHUT_WR)
            return self._read(sock, reader, attack, outcomes)
        except TimeoutError:
            raise
        except (Cut, OSError) as error:
            outcomes.append("closed")
            if attack.must_answer and len(outcomes) <= attack.answers:
                return Failure(attack=attack, reason=f"no answer: {error!r}")
        return None

    def _send(self, sock: socket.socket, reader: AnswerReader, attack: Attack) -> None:
        last = attack.pieces[-1]
        for piece in attack.pieces:
            if isinstance(piece, float):
                time.sleep(piece)
                continue
            if piece is last and attack.waits_for_100 and reader.interim() != 100:
                return
            sock.sendall(piece)

    def _read(
        self, sock: socket.socket, reader: AnswerReader, attack: Attack, outcomes: list[str]
    ) -> Failure | None:
        """All answers that have to come, and those that a client who has finished still gets."""
        while True:
            # What follows a request by mistake has no method that anybody knows.
            method = attack.method if len(outcomes) < attack.answers else "GET"
            answer = reader.read(method, version=attack.version)
            outcomes.append(str(answer.status))
            if (wrong := verdict(attack, method, answer)) is not None:
                return Failure(attack=attack, reason=wrong, answer=answer)
            if not answer.stays_open:
                reader.check_end()
                return None
            if len(outcomes) >= attack.answers and attack.ending is Ending.READ:
                return self._once_more(sock, reader, attack) if attack.is_plain else None

    def _once_more(
        self, sock: socket.socket, reader: AnswerReader, attack: Attack
    ) -> Failure | None:
        """The connection is said to be usable: both sides agree where the next answer begins."""
        sock.sendall(HEALTH)
        try:
            answer = reader.read("GET")
        except (Cut, ConnectionError) as error:
            return Failure(attack=attack, reason=f"a connection that stays open: {error!r}")
        # Health is no secret, so that it needs no key; 503: all slots are busy.
        if answer.status not in (200, 503) or b'"batch"' not in answer.body:
            return Failure(attack=attack, reason="health on the same connection", answer=answer)
        return None


def _reset(sock: socket.socket, bytes_read: int) -> None:
    if bytes_read:
        sock.recv(bytes_read)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a process holds."""

    resident_bytes: int
    files: int
    threads: int


def footprints(program: Program) -> dict[str, Footprint]:
    """Once nothing is open any more."""
    health = program.await_health(status="ok", batch__active_sequences=0, batch__queue_depth=0)
    pids = {"front": health["front"]["pid"], "worker": health["worker"]["pid"]}
    _await_no_clients(psutil.Process(pids["front"]))
    return {name: _footprint(psutil.Process(pid)) for name, pid in pids.items()}


def _footprint(process: psutil.Process) -> Footprint:
    return Footprint(
        resident_bytes=process.memory_info().rss,
        files=process.num_fds(),
        threads=process.num_threads(),
    )


def _await_no_clients(front: psutil.Process) -> None:
    """Until every connection that was left is closed on this side too."""
    deadline = time.monotonic() + 10
    states: set[str] = set()
    while time.monotonic() < deadline:
        states = {connection.status for connection in front.net_connections("tcp")}
        if states <= {psutil.CONN_LISTEN}:
            return
        time.sleep(0.05)
    raise AssertionError(f"connections of clients that have left: {states}")
