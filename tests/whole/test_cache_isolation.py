"""No session learns anything of another one: every route is walked, and every answer is compared
with that of a server which never saw the other session."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.tiny.families import GEMMA3, build_family_checkpoint
from tests.whole.apart import GUESSES, PRIVATE, SECRET, WORDS, Pair
from tests.whole.cache_calls import GENERATING, ROWS, Body, ask, chat, reset, shown, stats
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

EVE, BOB = {"user": "eve"}, {"user": "bob"}
NAMES = [
    pytest.param({"prompt_cache_key": "eve"}, {"prompt_cache_key": "bob"}, id="keys"),
    pytest.param(EVE, BOB, id="users"),
    pytest.param(EVE, {}, id="user-and-nobody"),
    pytest.param({}, BOB, id="nobody-and-user"),
    pytest.param({"prompt_cache_key": "eve"}, {}, id="key-and-nobody"),
    pytest.param({}, {"prompt_cache_key": "bob"}, id="nobody-and-key"),
    pytest.param(EVE, {"user": "eve", "prompt_cache_key": "bob"}, id="key-beats-user"),
    pytest.param(EVE, {"user": "Eve"}, id="capitals"),
    pytest.param(EVE, {"user": "eve "}, id="spaces"),
    pytest.param(EVE, {"user": "ev"}, id="beginnings"),
    pytest.param(EVE, {"user": "key:eve"}, id="as-it-is-kept"),
    pytest.param(EVE, {"conversation": "eve"}, id="conversation-while-there-are-none"),
    pytest.param({"extra_body": EVE}, {"extra_body": BOB}, id="nested"),
    pytest.param({"extra_body": EVE}, {}, id="nested-and-nobody"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_checkpoint(tmp_path_factory.mktemp("apart") / "apart", window=2048)


@pytest.fixture(scope="module")
def seen(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The server both sessions talk to."""
    slots = tmp_path_factory.mktemp("slots")
    with Program(*serve_checkpoint(folder, f"cache.slot_save_path={slots}")) as program:
        yield program


@pytest.fixture(scope="module")
def fresh(folder: Path) -> Iterator[Program]:
    """The server that only the second one talks to."""
    with Program(*serve_checkpoint(folder)) as program:
        yield program


@pytest.fixture
def pair(seen: Program, fresh: Program) -> Pair:
    return Pair(seen, fresh)


def test_rows_are_found() -> None:
    assert (len(ROWS), len(GENERATING)) >= (10, 2)
    assert ("openai.chat", "/chat/completions") in GENERATING


@pytest.mark.parametrize(("codec", "path"), GENERATING)
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize(("one", "other"), NAMES)
def test_sessions_apart(
    pair: Pair, codec: str, path: str, stream: bool, one: Body, other: Body
) -> None:
    pair.walk(codec, path, one, other, stream=stream)


@pytest.mark.parametrize("one", [{}, EVE], ids=["nobody", "eve"])
def test_one_session_is_told_all(seen: Program, one: Body) -> None:
    """What the others would be told: the comparison can fail."""
    reset(seen)
    ask(seen, chat(PRIVATE) | one)
    told = ask(seen, chat(f"{WORDS}{SECRET[:3]}, or not") | one)
    assert told.reused > len(WORDS) - 32
    assert SECRET in told.diverged["entry"]


def test_nobody_twice_is_one_session_however_it_is_said(pair: Pair) -> None:
    ways: list[Body] = [{}, {"user": ""}, {"prompt_cache_key": "", "user": None}]
    pair.first(chat(PRIVATE))
    assert all(pair.first(chat(PRIVATE) | way).reused > 0 for way in ways)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_cold_request_learns_nothing_and_leaves_nothing(pair: Pair, stream: bool) -> None:
    pair.first(chat(PRIVATE))
    for text in GUESSES:
        cold = chat(text) | {"cache_prompt": False}
        assert pair.second(cold, stream=stream).header == "off; reason=disabled"
    assert pair.second(chat(PRIVATE[:100]) | BOB).header == "miss; reason=empty_set"


def test_sessions_that_come_together(seen: Program) -> None:
    """What is read side by side is shared by one session alone."""
    reset(seen)
    bodies = [chat(PRIVATE * 3) | {"user": f"guest-{n}"} for n in range(6)]
    with ThreadPoolExecutor(len(bodies)) as pool:
        told = list(pool.map(lambda body: ask(seen, body), bodies))
        assert {one.header for one in told} == {"miss; reason=empty_set"}
        alike = pool.map(lambda body: ask(seen, body | {"user": "one-guest"}), bodies)
        assert any(one.reused > 0 for one in alike)


def test_restored_slot_warms_its_own_session(pair: Pair, seen: Program) -> None:
    pair.first(chat(PRIVATE) | EVE)
    name = {"filename": "eve.bin"}
    assert seen.post("/slots/0?action=save", name)[0] == 200
    reset(seen)
    assert seen.post("/slots/0?action=restore", name)[0] == 200
    _await_entry(seen)
    told = [pair.second(chat(text) | BOB) for text in GUESSES]
    assert told[0].header == "miss; reason=empty_set"
    assert pair.first(chat(PRIVATE) | EVE).reused > len(PRIVATE) - 32


def _await_entry(program: Program) -> None:
    program.await_health(batch__active_sequences=0)
    deadline = time.monotonic() + 20
    while not stats(program)["entries"]:
        assert time.monotonic() < deadline, "the restored slot was not read"
        time.sleep(0.02)


@pytest.mark.slow
def test_files_tell_sessions_apart(folder: Path, tmp_path: Path) -> None:
    def serve(name: str) -> Program:
        words = ("cache=disk", f"cache.disk.path={tmp_path / name}")
        return Program(*serve_checkpoint(folder, *words))

    with serve("seen") as first:
        ask(first, chat(PRIVATE) | EVE)
        _await_written(first)
    with serve("seen") as seen, serve("fresh") as fresh:
        assert stats(seen)["disk"]["files"] > 0
        told = [
            (ask(seen, chat(text) | who), ask(fresh, chat(text) | who))
            for who in (BOB, {})
            for text in GUESSES
        ]
        assert [shown(one) for one, _ in told] == [shown(other) for _, other in told]
        assert ask(seen, chat(PRIVATE) | EVE).header.startswith("hit; reused=448; source=disk")


def _await_written(program: Program) -> None:
    deadline = time.monotonic() + 20
    while (disk := stats(program)["disk"])["queue_bytes"] or not disk["files"]:
        assert time.monotonic() < deadline, disk
        time.sleep(0.02)


@pytest.mark.slow
def test_snapshots_tell_sessions_apart(tmp_path: Path) -> None:
    """A family whose KV cannot be cut: its states are kept whole."""
    folder = build_family_checkpoint(tmp_path / "windows", GEMMA3, window=2048)
    with (
        Program(*serve_checkpoint(folder)) as seen,
        Program(*serve_checkpoint(folder)) as fresh,
    ):
        pair = Pair(seen, fresh)
        pair.first(chat(PRIVATE) | EVE)
        for who in (BOB, {}):
            told = [pair.second(chat(text) | who) for text in GUESSES]
            assert told[0].header == "miss; reason=empty_set"
            again = pair.second(chat(GUESSES[-1]) | who)
            assert again.header.startswith("hit; reused=52; source=snapshot")
        assert pair.first(chat(PRIVATE) | EVE).reused > len(PRIVATE)


THINK = ("<think>", "</think>")
RECALLS = """\
{%- for message in messages -%}
{{ "<|" ~ message.role ~ "|>" }}
{%- set thoughts = message.reasoning_content -%}
{%- if thoughts %}{{ "<think>" ~ thoughts ~ "</think>" }}{% endif -%}
{{ message.content ~ "<|end|>" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<|assistant|><think>" }}{% endif -%}
"""


@pytest.mark.slow
def test_thoughts_are_put_back_for_who_had_them_only(tmp_path: Path) -> None:
    folder = build_tiny_checkpoint(
        tmp_path / "thinker", window=2048, markers=THINK, template=RECALLS
    )
    letters = {str(byte): 100.0 for byte in b"abcdefghijklmnopqrstuvwxyz"}
    with (
        Program(*serve_checkpoint(folder)) as seen,
        Program(*serve_checkpoint(folder)) as fresh,
    ):
        pair = Pair(seen, fresh)
        asked = chat(WORDS) | {
            "logit_bias": letters,
            "max_tokens": 16,
            "thinking_budget_tokens": 6,
        }
        said = json.loads(pair.first(asked | EVE).body)["choices"][0]["message"]
        assert len(said["reasoning_content"]) == 6
        answer = {"role": "assistant", "content": said["content"]}
        turns = [*asked["messages"], answer, {"role": "user", "content": "and?"}]
        again = chat("") | {"messages": turns}
        put_back = pair.first(again | EVE)
        assert put_back.reused > len(WORDS) - 32
        for who in (BOB, {}):
            told = pair.second(again | who)
            assert told.header == "miss; reason=empty_set"
            missing = put_back.usage["prompt_tokens"] - told.usage["prompt_tokens"]
            assert missing == len(THINK) + len(said["reasoning_content"])
