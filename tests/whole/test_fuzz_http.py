"""Eleven thousand hostile requests, on every method of every route: each gets a correct answer in
the shape of its route, none of them is our fault, and afterwards the server is as it was before.

Run with `-s` to see what came of them.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.whole.cache_calls import ROWS
from tests.whole.fuzzing import CLIENTS, Fuzzer, footprints
from tests.whole.program import Program, chat_body, serve_checkpoint

pytestmark = [pytest.mark.whole, pytest.mark.slow]

ROUND = 250
GROWTH = 1.05
"""Of resident memory while half of the requests are sent once more: what a kind of request makes
once, and arenas of large bodies, are there already."""
SOON_S = 2.0
QUESTION = "are you there?"
BUSY = frozenset({"slot_action", "slots", "health"})
"""Rows that may answer 503: a slot that is in use is neither saved nor emptied, and health tells
that none is free, as `/slots` does where it is asked to."""
FEW = ("limits.responses_store.max_entries=8", "limits.conversation_store.max_entries=8")
"""What is kept on purpose is no leak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server under attack."""

    program: Program
    key: str | None

    def call(self, method: str, path: str, body: object = None) -> Any:
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        status, answer = self.program.call(method, path, body, headers)
        assert status == 200, (method, path, answer)
        return answer

    def ask(self) -> str:
        """A plain question of a client that means well: answered, and soon."""
        began = time.monotonic()
        body = chat_body(QUESTION, max_tokens=40)
        answer = self.call("POST", "/v1/chat/completions", body)
        assert time.monotonic() - began < SOON_S
        (choice,) = answer["choices"]
        return str(choice["message"]["content"])

    def check_idle(self) -> None:
        assert not any(slot["is_processing"] for slot in self.call("GET", "/slots"))
        streams = self.call("POST", "/v1/streams/lookup", {"conversation_ids": ["fuzz", "left-1"]})
        assert all(stream["is_done"] for stream in streams)


def storm(served: Served, fuzzer: Fuzzer, count: int, text: str | None) -> None:
    """`text`: what a question is answered with while it rages; None: it is asked in the lulls."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        while fuzzer.sent < count:
            for _ in fuzzer.round(pool, ROUND):
                assert text is None or served.ask() == text
            if text is None:
                served.program.await_health(batch__active_sequences=0, batch__queue_depth=0)
                served.ask()


def attack(
    served: Served, *, seed: int, count: int, text: str | None, is_whole: bool = True
) -> Fuzzer:
    """All that has to hold of a server, whatever it is sent. `is_whole`: every kind of request is
    sent to every target, whatever `count` says."""
    program = served.program
    fuzzer = Fuzzer(program, seed=seed, key=served.key)
    if is_whole:
        count = max(count, fuzzer.pairs)
    storm(served, fuzzer, count, text)
    before = footprints(program)
    again = Fuzzer(program, seed=seed, key=served.key)
    storm(served, again, count // 2, text)
    after = footprints(program)
    tally = fuzzer.tally
    print(f"\n{fuzzer.sent} requests, seed {seed}\n{tally.table()}\n{before}\n{after}")
    failures = [*tally.failures, *again.tally.failures]
    assert not failures, "\n".join(str(failure) for failure in failures[:10])
    assert tally.rows.get("501", set()) <= tally.unserved
    assert tally.rows.get("503", set()) <= BUSY
    served.check_idle()
    for name, then in before.items():
        now = after[name]
        assert now.resident_bytes < then.resident_bytes * GROWTH, (name, then, now)
        assert now.files <= then.files, (name, then, now)
    assert "Traceback" not in program.text
    assert program.health()["worker"]["restarts"] == 0
    return fuzzer


def check_all_were_attacked(fuzzer: Fuzzer) -> None:
    assert fuzzer.sent >= fuzzer.pairs
    assert set.union(*fuzzer.tally.rows.values()) == set(ROWS)


def everything(folder: Path) -> Sequence[str]:
    return (
        *("model=echo", "--props", "--metrics", "routes.slots_debug=true", *FEW),
        f"cache.slot_save_path={folder}",
    )


def test_server_with_everything_on(tmp_path: Path) -> None:
    with Program(*everything(tmp_path)) as program:
        served = Served(program=program, key=None)
        check_all_were_attacked(attack(served, seed=1, count=6000, text=QUESTION))


def test_server_with_keys_and_conversations(tmp_path: Path) -> None:
    key = "a-key-of-the-fuzz"
    words = ("model=echo", "cache=conversations", f"cache.conversations.disk_dir={tmp_path}", *FEW)
    with Program(*words, f"cache.prefix_dir={tmp_path}/prefix", f"--api-key={key}") as program:
        served = Served(program=program, key=key)
        check_all_were_attacked(attack(served, seed=2, count=4000, text=QUESTION))
        assert key not in program.text


def test_real_engine(tmp_path: Path, tiny: Path) -> None:
    words = (
        *("--props", "--metrics", "cache=conversations", f"cache.slot_save_path={tmp_path}"),
        *(f"cache.conversations.disk_dir={tmp_path}/kept", f"cache.prefix_dir={tmp_path}/prefix"),
        # What is kept on purpose is no leak.
        *("cache.prompt.max_entries=8", "cache.conversations.max_conversations=4", *FEW),
    )
    with Program(*serve_checkpoint(tiny, *words)) as program:
        served = Served(program=program, key=None)
        text = served.ask()
        attack(served, seed=3, count=1000, text=None, is_whole=False)
        assert served.ask() == text
