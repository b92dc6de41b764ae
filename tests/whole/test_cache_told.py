"""What a client is told of the prompt cache, by the whole program: header, timings and usage, in
one piece and as a stream."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours
LETTERS = {str(byte): 100.0 for byte in b"abcdefghijklmnopqrstuvwxyz"}
"""What the tiny model says is text then, and reads as the tokens it was made of."""
WORDS = "word " * 60
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_checkpoint(tmp_path_factory.mktemp("told") / "told", window=2048)


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[Program]:
    with Program(*serve_checkpoint(folder)) as running:
        yield running


def messages(system: str, *turns: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    said = [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]
    return [{"role": "system", "content": system}, *said]


def ask(program: Program, sent: list[dict[str, str]], **fields: Any) -> tuple[str, str]:
    """The header and the body."""
    body = {
        "model": "told",
        "messages": sent,
        "max_tokens": 8,
        "temperature": 0,
        "logit_bias": LETTERS,
    }
    request = urllib.request.Request(
        f"{program.url}/v1/chat/completions",
        json.dumps(body | fields).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        return reply.headers["X-Cache-Status"], reply.read().decode()


def test_second_turn_is_a_hit_in_every_place_it_is_told(program: Program) -> None:
    header, first = ask(program, messages("one more " + WORDS, "hi"))
    assert header.startswith("miss; reason=empty_set")
    assert json.loads(first)["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    said = json.loads(first)["choices"][0]["message"]["content"]
    header, second = ask(program, messages("one more " + WORDS, "hi", said, "and?"))
    told = json.loads(second)
    # A prompt of 316 tokens, and of the 8 that were said the 7 that were read: 323.
    assert told["usage"]["prompt_tokens_details"] == {"cached_tokens": 320}
    assert header.startswith("hit; reused=320; source=memory")
    cache = told["timings"]["cache"]
    assert (cache["status"], cache["reused_tokens"], cache["source"]) == ("hit", 320, "memory")
    assert told["timings"]["cache_n"] == 320


def test_stream_tells_the_same(program: Program) -> None:
    sent = messages("two " + WORDS, "hi")
    ask(program, sent)
    how = {"stream": True, "stream_options": {"include_usage": True}}
    header, text = ask(program, sent, **how)
    assert header.startswith("hit; reused=288; source=memory")
    assert '"cache":{"status":"hit","reused_tokens":288,"source":"memory"' in text
    assert '"prompt_tokens_details":{"cached_tokens":288}' in text


def test_changed_word_is_named_with_both_sides(program: Program) -> None:
    ask(program, messages("Be the cat. " + WORDS, "hi"), user="place")
    header, text = ask(program, messages("Be the dog. " + WORDS, "hi"), user="place")
    assert header == "miss; reason=prefix_too_short; at=8"
    diverged = json.loads(text)["timings"]["cache"]["diverged"]
    assert diverged["at"] == 8
    assert "cat" in diverged["entry"]
    assert "dog" in diverged["prompt"]


def test_changed_tools_are_named(program: Program) -> None:
    sent = messages("four " + WORDS, "hi")
    ask(program, sent, tools=[TOOL], user="tools")
    other = {"type": "function", "function": TOOL["function"] | {"description": "d"}}  # type: ignore[operator]
    header, _ = ask(program, sent, tools=[other], user="tools")
    assert header.startswith("miss; reason=empty_set; differs=tools; at=")


def test_users_and_cold_requests_share_nothing(program: Program) -> None:
    sent = messages("five " + WORDS, "hi")
    ask(program, sent, user="eve")
    assert ask(program, sent, user="bob")[0].startswith("miss; reason=empty_set")
    assert ask(program, sent)[0].startswith("miss")
    assert ask(program, sent, user="bob", prompt_cache_key="eve")[0].startswith("hit")
    header, text = ask(program, sent, user="eve", cache_prompt=False)
    assert header == "off; reason=disabled"
    assert json.loads(text)["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_server_without_a_cache_says_so(folder: Path) -> None:
    with Program(*serve_checkpoint(folder, "cache=none")) as running:
        sent = messages(WORDS, "hi")
        for _ in range(2):
            header, text = ask(running, sent, cache_prompt=True)
            assert header == "off; reason=disabled"
            assert "cached_tokens" not in text
