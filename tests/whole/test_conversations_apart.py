"""What holds for sessions holds for conversations, and for all other routes while everything is
on that there is: nothing of one is told to another."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxcel.http import wire
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.apart import GUESSES, PRIVATE, SECRET, WORDS, Pair
from tests.whole.cache_calls import OTHERS, ROWS, TALKING, Body, ask, chat, reset
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

NAME = "eves-own"
EVE, BOB = {"conversation": NAME}, {"conversation": "bob"}
NAMES = [
    pytest.param(EVE, BOB, id="conversations"),
    pytest.param(EVE, {"conversation_id": "bob"}, id="both-spellings"),
    pytest.param(EVE, {}, id="conversation-and-address"),
    pytest.param({}, BOB, id="address-and-conversation"),
    pytest.param(EVE, {"conversation": f"conv:{NAME}"}, id="as-it-is-kept"),
    pytest.param(EVE, {"prompt_cache_key": NAME}, id="conversation-and-key"),
    pytest.param(EVE, {"user": f"conv:{NAME}"}, id="conversation-and-user"),
    pytest.param({"user": "eve"}, {"conversation": "key:eve"}, id="user-and-conversation"),
    pytest.param({"user": "eve"}, {"conversation": "eve"}, id="user-and-its-namesake"),
    pytest.param({"user": "eve"}, {"user": "bob"}, id="users"),
    pytest.param({"user": "eve"}, {}, id="user-and-nobody"),
    pytest.param({}, {"user": "bob"}, id="nobody-and-user"),
    pytest.param(EVE, BOB | {"prompt_cache_key": NAME}, id="conversation-beats-key"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_checkpoint(tmp_path_factory.mktemp("apart") / "apart", window=2048)


def serve(folder: Path, kept: Path) -> Program:
    options = (
        "cache=conversations",
        f"cache.conversations.disk_dir={kept}",
        f"cache.prefix_dir={kept / 'prefix'}",
        f"cache.slot_save_path={kept / 'slots'}",
        *(f"routes.{switch}=true" for switch in ("settings", "metrics", "props")),
    )
    return Program(*serve_checkpoint(folder, *options))


@pytest.fixture(scope="module")
def seen(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with serve(folder, tmp_path_factory.mktemp("kept")) as program:
        yield program


@pytest.fixture(scope="module")
def fresh(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with serve(folder, tmp_path_factory.mktemp("kept")) as program:
        yield program


@pytest.fixture
def pair(seen: Program, fresh: Program) -> Pair:
    return Pair(seen, fresh)


@pytest.mark.parametrize(("codec", "path"), TALKING)
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize(("one", "other"), NAMES)
def test_conversations_apart(
    pair: Pair, codec: str, path: str, stream: bool, one: Body, other: Body
) -> None:
    pair.walk(codec, path, one, other, stream=stream)


def served(program: Program, method: str, path: str, body: object = None) -> tuple[int, str]:
    """Status, and all bytes of the answer as text, headers with it."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"}
    request = urllib.request.Request(program.url + path, data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, f"{reply.headers}{reply.read().decode()}"
    except urllib.error.HTTPError as error:
        return error.code, f"{error.headers}{error.read().decode()}"


SLOT = {"filename": "slot.bin"}
ACTS: dict[str, list[tuple[str, object, int]]] = {
    "cache.reset": [("", {}, 200)],
    "conversations.save": [("", BOB, 404)],
    "conversations.load": [("", BOB, 404)],
    "conversations.delete": [("", None, 200)],
    "settings.patch": [("", {}, 200)],
    "settings.revert": [("", {"version": 1}, 404)],
    "slots.act": [
        ("?action=save", SLOT, 200),
        ("?action=restore", SLOT, 200),
        ("?action=erase", None, 200),
    ],
}
"""How a route is called by one who knows no name but his own: the end of the path, the body, and
the status. A route without a line here is called with the example of its schema, and may answer
with whatever it says it does."""
PARTS = {
    "id_slot": "0",
    "conversation": "bob",
    "model": "apart",
    "conv_id": "bob",
    "response": "resp_0",
}
"""What stands for parts of a path, and in a query that has to be there."""


def row_of(handler: str, method: str, path: str) -> dict[str, Any]:
    return next(
        row
        for row in ROWS.values()
        if (row["handler"], method in row["methods"], path in row["paths"]) == (handler, True, True)
    )


def usual(row: dict[str, Any]) -> tuple[str, object, set[int]]:
    """End of the path, body, and the statuses it may answer with."""
    query = wire.read(row["query"]).get("required", ()) if "query" in row else ()
    end = "".join(f"{'&' if at else '?'}{name}={PARTS[name]}" for at, name in enumerate(query))
    body = wire.read(row["body"])["examples"][0] if "body" in row else None
    told = {int(status) for status in (*row["answers"], *row.get("errors", ()))}
    return end, body, {status for status in told if status < 500}


@pytest.mark.parametrize(("handler", "method", "path"), OTHERS)
def test_other_routes_show_nothing(seen: Program, handler: str, method: str, path: str) -> None:
    reset(seen)
    ask(seen, chat(PRIVATE) | EVE)
    row = row_of(handler, method, path)
    path = re.sub(r"<(\w+)(:\w+)?>", lambda part: PARTS[part[1]], path)
    acts = [(end, body, {status}) for end, body, status in ACTS.get(handler, ())]
    for end, body, statuses in acts or [usual(row)]:
        answer = served(seen, method, path + end, body)
        assert answer[0] in statuses, answer
        assert SECRET not in answer[1]
        assert WORDS[:20] not in answer[1]
        assert NAME not in answer[1]
        told = ask(seen, chat(GUESSES[0]) | {"conversation": f"{handler}{method}{path}{end}"})
        assert told.header == "miss; reason=empty_set"


def test_saved_conversation_comes_back_under_its_own_id_only(pair: Pair, seen: Program) -> None:
    """Its id is what may bring it back, as it is what may go on with it."""
    pair.first(chat(PRIVATE) | EVE)
    assert seen.post("/v1/conv_kv/save", EVE)[0] == 200
    reset(seen)
    for act in ("save", "load"):
        assert seen.post(f"/v1/conv_kv/{act}", BOB)[0] == 404
    assert seen.call("DELETE", "/v1/conv_kv/bob")[1]["status"] == "not_found"
    assert seen.post("/v1/conv_kv/load", EVE)[0] == 200
    told = [pair.second(chat(text) | BOB) for text in GUESSES]
    assert told[0].headers["x-conv-kv"] == "fresh"
    again = pair.first(chat(PRIVATE) | EVE)
    assert (again.headers["x-conv-kv"], again.reused > len(PRIVATE)) == ("hit", True)
    assert seen.call("DELETE", f"/v1/conv_kv/{NAME}")[1]["status"] == "deleted"


RULES = f"You are {SECRET}, a helper of few words. {WORDS}"


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(RULES[:-1], id="one-letter-less"),
        pytest.param(f"{RULES}x", id="one-letter-more"),
        pytest.param(RULES[:20].replace(SECRET, "a fool"), id="another"),
        pytest.param(None, id="none"),
    ],
)
def test_system_prefix_is_told_to_who_says_all_of_it(pair: Pair, system: str | None) -> None:
    """`cache.prefix_dir` is one place for all sessions (seed-kamiwaza, 4): what it holds is found
    by the whole text only, and nothing is told of where another one parts from it."""
    pair.first(chat("hi", RULES) | EVE)
    asked = chat("hi", system) | BOB
    assert pair.second(asked).header == "miss; reason=empty_set"


def test_whole_system_prefix_is_found_by_all(seen: Program) -> None:
    reset(seen)
    ask(seen, chat("hi", RULES) | EVE)
    told = ask(seen, chat("ho", RULES) | BOB)
    assert told.headers["x-conv-kv"] == "fresh"
    assert told.reused == len("<" + RULES + ">")  # two markers around the text
    assert told.cache["diverged"] is None
