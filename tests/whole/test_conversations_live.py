"""Conversations against the real worker: what headers say, files that survive a restart."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.whole.program import Program, serve_checkpoint

CHAT = "/v1/chat/completions"
WORDS = "0123456789 abcdefghijklmnopqrstuvwxyz"
pytestmark = pytest.mark.slow


def serve(tiny: Path, folder: Path, *words: str) -> Program:
    options = (
        "cache=conversations",
        f"cache.conversations.disk_dir={folder}",
        f"cache.prefix_dir={folder}/prefix",
        "routes.require_model=false",
        *words,
    )
    return Program(*serve_checkpoint(tiny, *options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conversations")


@pytest.fixture(scope="module")
def program(tiny: Path, folder: Path) -> Iterator[Program]:
    with serve(tiny, folder) as running:
        yield running


class Talk:
    """What a client sends and keeps."""

    def __init__(self, program: Program, conversation: str | None = None) -> None:
        self._url = program.url
        self._named = {} if conversation is None else {"conversation": conversation}
        self.messages: list[dict[str, Any]] = []

    def say(self, text: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        """The answer joins the messages."""
        self.messages.append({"role": "user", "content": text})
        answer = self.send(headers, **more)
        if more.get("stream"):
            said = "".join(told(answer.text))
        else:
            said = answer.json()["choices"][0]["message"]["content"]
        self.messages.append({"role": "assistant", "content": said})
        return answer

    def send(self, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        body = {"messages": self.messages, "temperature": 0, "max_tokens": 8}
        sent = body | self._named | more
        answer = httpx.post(self._url + CHAT, json=sent, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer


def told(stream: str) -> Iterator[str]:
    for line in stream.split("\n\n"):
        data = line.removeprefix("data: ")
        if data and data != "[DONE]":
            for choice in json.loads(data)["choices"]:
                yield choice["delta"].get("content") or ""


def kv(answer: httpx.Response) -> tuple[str, str]:
    return answer.headers["x-conv-id"], answer.headers["x-conv-kv"]


def cached(answer: httpx.Response) -> int:
    return int(answer.headers["x-conv-cached-tokens"])


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_fresh_hit_and_a_step_back(program: Program, stream: bool) -> None:
    name = f"trip-{stream}"
    talk = Talk(program, name)
    first = talk.say("which colour? " + WORDS, stream=stream)
    assert (kv(first), cached(first)) == ((name, "fresh"), 0)
    second = talk.say("and why? " + WORDS, stream=stream)
    assert kv(second) == (name, "hit")
    third = talk.say("and how? " + WORDS, stream=stream)
    assert kv(third) == (name, "hit")
    assert cached(third) > cached(second) > len(WORDS)
    del talk.messages[-3:]
    back = talk.say("no, when? " + WORDS, stream=stream)
    assert kv(back) == (name, "hit")
    assert 0 < cached(back) < cached(third)
    assert int(back.headers["x-conv-processing-tokens"]) >= len(WORDS)


def test_headers_and_usage_agree(program: Program) -> None:
    talk = Talk(program, "agree")
    talk.say(WORDS)
    answer = talk.say(WORDS)
    body = answer.json()
    usage = body["usage"]
    assert usage["input_tokens_details"] == {"cached_tokens": cached(answer)}
    assert usage["input_tokens"] == usage["prompt_tokens"]
    assert usage["output_tokens"] == usage["completion_tokens"] == 8
    assert usage["tokens_per_second"] > 0
    processing = int(answer.headers["x-conv-processing-tokens"])
    assert processing + cached(answer) == usage["prompt_tokens"]
    assert body["metadata"] == {"conversation_id": "agree"}


def test_an_earlier_state_is_a_snapshot(program: Program) -> None:
    talk = Talk(program, "snap")
    talk.say("first " + WORDS)
    other = Talk(program, "snap")
    other.say("Another thing altogether " + WORDS)
    back = talk.say("second " + WORDS)
    assert kv(back) == ("snap", "snapshot")
    assert cached(back) > len(WORDS)


def test_a_cached_answer_is_the_cold_one(program: Program) -> None:
    talk = Talk(program, "same")
    talk.say(WORDS)
    warm = talk.say(WORDS)
    del talk.messages[-1]
    cold = talk.send(reset_conversation=True)
    assert cached(warm) > 0
    assert [a.json()["choices"][0]["message"] for a in (warm, cold)] == [
        cold.json()["choices"][0]["message"]
    ] * 2


def test_a_reset_reads_cold_and_keeps_nothing(program: Program) -> None:
    talk = Talk(program, "reset")
    talk.say(WORDS)
    again = talk.send(reset_conversation=True)
    assert (kv(again), cached(again)) == (("reset", "none"), 0)
    other = Talk(program, "never")
    other.say(WORDS, reset_conversation=True)
    later = other.say(WORDS)
    assert (kv(later), cached(later)) == (("never", "fresh"), 0)


def test_disabled(program: Program) -> None:
    talk = Talk(program, "off")
    talk.say(WORDS)
    answer = talk.say(WORDS, cache_prompt=False)
    assert (kv(answer), cached(answer)) == (("off", "disabled"), 0)


def test_whose_conversation(program: Program) -> None:
    header = {"X-Conversation-Id": "from-header"}
    talk = Talk(program)
    assert kv(talk.say(WORDS))[0] == "client:127.0.0.1"
    assert kv(talk.say(WORDS, header))[0] == "from-header"
    assert kv(talk.say(WORDS, header, conversation_id="second"))[0] == "second"
    both = {"conversation": "first", "conversation_id": "second"}
    assert kv(talk.say(WORDS, header, **both))[0] == "first"
    blank = {"conversation": " ", "conversation_id": ""}
    assert kv(talk.say(WORDS, {"X-Conversation-Id": ""}, **blank))[0] == "client:127.0.0.1"


def test_conversations_share_nothing(program: Program) -> None:
    Talk(program, "mine").say(WORDS)
    theirs = Talk(program, "theirs").say(WORDS)
    keyed = Talk(program, "keyed").say(WORDS, prompt_cache_key="conv:mine")
    assert [(kv(a)[1], cached(a)) for a in (theirs, keyed)] == [("fresh", 0)] * 2


def test_saved_and_loaded_after_a_restart(tiny: Path, tmp_path: Path) -> None:
    talk_to = {"conversation": "trip-1", "title": "Lisbon notes"}
    with serve(tiny, tmp_path) as first:
        talk = Talk(first, "trip-1")
        talk.say(WORDS)
        warm = talk.say(WORDS)
        status, saved = first.post("/v1/conv_kv/save", talk_to)
        assert status == 200, saved
        assert (saved["id"], saved["path"]) == ("trip-1", "tiny-2l__trip-1.safetensors")
    messages = talk.messages
    with serve(tiny, tmp_path) as second:
        assert second.post("/v1/conv_kv/save", talk_to)[0] == 404
        items = second.get("/v1/conv_kv/stats")[1]["items"]
        assert [(item["title"], item["tokens"]) for item in items] == [
            ("Lisbon notes", saved["tokens"])
        ]
        status, loaded = second.post("/v1/conv_kv/load", {"conversation": "trip-1"})
        assert (status, loaded) == (
            200,
            {
                "status": "loaded",
                "id": "trip-1",
                "tokens": saved["tokens"],
                "has_boundary": True,
                "has_hashes": True,
            },
        )
        talk = Talk(second, "trip-1")
        talk.messages = messages
        answer = talk.say("go on")
        assert kv(answer) == ("trip-1", "hit")
        assert cached(answer) > cached(warm)
        meta = json.loads((tmp_path / "tiny-2l__trip-1.meta.json").read_text())
        ends = meta["boundary_offsets"]
        assert len(ends) == len(meta["messages"]) == 4
        assert ends == sorted(ends)
        assert cached(answer) >= ends[2]


def test_a_file_cut_short_is_refused(tiny: Path, tmp_path: Path) -> None:
    with serve(tiny, tmp_path) as running:
        Talk(running, "t").say(WORDS)
        assert running.post("/v1/conv_kv/save", {"conversation": "t"})[0] == 200
        path = tmp_path / "tiny-2l__t.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        status, refused = running.post("/v1/conv_kv/load", {"conversation": "t"})
        assert (status, "cannot be loaded" in refused["detail"]) == (400, True)
        assert Talk(running, "u").say(WORDS).status_code == 200


def test_system_messages_survive_a_restart(tiny: Path, tmp_path: Path) -> None:
    system = {"role": "system", "content": "You are a helper. " + WORDS}
    kept = tmp_path / "prefix" / "tiny-2l.safetensors"
    digests = []
    for turn in range(2):
        with serve(tiny, tmp_path) as running:
            talk = Talk(running, f"c{turn}")
            talk.messages.append(system)
            answer = talk.say("hello")
            assert (cached(answer) > len(WORDS)) is (turn == 1)
        assert kept.exists()
        digests.append(kept.with_name(kept.name + ".hash").read_text())
    assert digests[0] == digests[1]
