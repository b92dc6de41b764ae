"""Public faults, family B, in streams of /v1/completions."""

import json
from typing import Any

import pytest

from tests.cases.asking import DONE, Streamed, await_idle, opened, stream
from tests.cases.test_a_completions import TEXT, completed, text_body
from tests.whole.program import Program
from tests.whole.schemas import forced

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours


def texts_of(streamed: Streamed) -> dict[int, list[str]]:
    """What each choice was told, piece by piece."""
    found: dict[int, list[str]] = {}
    for chunk in streamed.chunks:
        for choice in chunk["choices"]:
            found.setdefault(choice["index"], []).append(choice["text"])
    return found


def test_b2_characters_of_several_tokens_come_whole(tiny_server: Program) -> None:
    """B2: no piece holds half a character; together they are the text."""
    word = "é漢🎭👩‍👩‍👧"
    body = text_body("hi", max_tokens=120, response_format=forced(word))
    pieces = texts_of(stream(tiny_server, body, path=TEXT))[0]
    assert not any("\ufffd" in piece for piece in pieces)
    assert json.loads("".join(pieces)) == {"t": word}


def test_b4_no_piece_shows_a_stop_string(tiny_server: Program) -> None:
    """B4: not at any moment."""
    body = text_body("hi", max_tokens=60, response_format=forced("ab-cd-ef"), stop=["-c"])
    streamed = stream(tiny_server, body, path=TEXT)
    assert "".join(texts_of(streamed)[0]) == '{"t":"ab'
    assert streamed.reasons == ["stop"]


@pytest.mark.parametrize("prompt", ["hi", ["hi", "ho"]], ids=["one", "two"])
def test_b6_usage_is_told_once_and_last(tiny_server: Program, prompt: Any) -> None:
    """B6: exactly one chunk without choices, equal to the usage of the plain answer."""
    fields: dict[str, Any] = {"max_tokens": 5, "seed": 1}
    body = text_body(prompt, stream_options={"include_usage": True}, **fields)
    streamed = stream(tiny_server, body, path=TEXT)
    assert streamed.payloads[-1] == DONE
    *others, last = streamed.chunks
    assert last["choices"] == []
    assert all(chunk.get("usage") is None for chunk in others)
    plain = completed(tiny_server, prompt, **fields)["usage"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert last["usage"][name] == plain[name]


def test_b6_no_usage_unless_asked(tiny_server: Program) -> None:
    """B6: nor for `false`."""
    for options in (None, {}, {"include_usage": False}):
        streamed = stream(tiny_server, text_body("hi", stream_options=options), path=TEXT)
        assert not any("usage" in chunk for chunk in streamed.chunks)


@pytest.mark.parametrize("prompts", [1, 2])
def test_b8_each_choice_ends_once_and_last(tiny_server: Program, prompts: int) -> None:
    """B8: the key is there and null on every chunk but the last of each choice."""
    body = text_body(["a", "b"][:prompts], n=2)
    chunks = stream(tiny_server, body, path=TEXT).chunks
    by_choice: dict[int, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            by_choice.setdefault(choice["index"], []).append(choice["finish_reason"])
    assert sorted(by_choice) == list(range(2 * prompts))
    for reasons in by_choice.values():
        assert reasons[:-1] == [None] * (len(reasons) - 1)
        assert reasons[-1] in ("stop", "length")


@pytest.mark.parametrize("echo_prompt", [True, False])
@pytest.mark.parametrize("logprobs", [None, 2])
def test_b8_the_stream_joined_is_the_plain_answer(
    tiny_server: Program, echo_prompt: bool, logprobs: int | None
) -> None:
    """B8: whatever is asked for beside the text."""
    fields: dict[str, Any] = {"echo": echo_prompt, "logprobs": logprobs, "max_tokens": 12}
    prompts = ["Hé", "漢", ""]
    streamed = texts_of(stream(tiny_server, text_body(prompts, **fields), path=TEXT))
    plain = completed(tiny_server, prompts, **fields)["choices"]
    assert {i: "".join(t) for i, t in streamed.items()} == {c["index"]: c["text"] for c in plain}
    if echo_prompt:
        assert [c["text"].startswith(p) for c, p in zip(plain, prompts, strict=True)] == [True] * 3


def test_b12_leaving_frees_the_slots_of_all_prompts(long_tiny: Program) -> None:
    """B12: nobody generates for nobody, be it several prompts."""
    body = text_body(["a", "b"], max_tokens=20_000, ignore_eos=True, stream=True)
    with opened(long_tiny, body, path=TEXT) as response:
        response.read(100)
        long_tiny.await_health(batch__active_sequences=2)
    await_idle(long_tiny, 2)
