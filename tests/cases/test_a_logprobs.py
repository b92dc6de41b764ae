"""Public faults, family A: log-probabilities of chat answers."""

from typing import Any

import pytest

from tests.cases.asking import CHAT, stream
from tests.whole.program import Program, chat_body, text_of
from tests.whole.schemas import forced

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

ASKED = {"logprobs": True, "top_logprobs": 2}


def assert_entry(entry: dict[str, Any], *, top: int) -> None:
    assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
    assert entry["logprob"] <= 0
    assert len(entry["top_logprobs"]) == top
    values = [other["logprob"] for other in entry["top_logprobs"]]
    assert values == sorted(values, reverse=True)
    for one in (entry, *entry["top_logprobs"]):
        assert isinstance(one["token"], str)
        assert one["bytes"] is None or bytes(one["bytes"]).decode(errors="replace") == one["token"]


def entries_of_stream(program: Program, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Of all chunks together, each of which carries its own share."""
    choices = [choice for chunk in stream(program, body).chunks for choice in chunk["choices"]]
    shares = [choice["logprobs"]["content"] for choice in choices if choice["logprobs"]]
    assert all(len(share) == 1 for share in shares)
    return [entry for share in shares for entry in share]


@pytest.mark.parametrize("top", [0, 2, 20])
@pytest.mark.parametrize("server", ["tiny_server", "echo"])
def test_a5_each_token_has_its_entry(
    tiny_server: Program, echo: Program, server: str, top: int
) -> None:
    """A5: chat answers carried the legacy layout of log-probabilities.

    https://github.com/vllm-project/vllm/issues/3179
    """
    program = {"tiny_server": tiny_server, "echo": echo}[server]
    body = chat_body("hello", max_tokens=3) | ASKED | {"top_logprobs": top}
    status, answer = program.post(CHAT, body)
    assert status == 200, answer
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["content"]) == answer["usage"]["completion_tokens"] == 3
    for entry in logprobs["content"]:
        assert_entry(entry, top=top)
        if top:
            best = entry["top_logprobs"][0]
            assert (best["token"], best["logprob"]) == (entry["token"], entry["logprob"])
    assert entries_of_stream(program, body) == logprobs["content"]


def test_a5_bytes_are_those_of_the_token(tiny_server: Program) -> None:
    """A5: half a character has bytes too; joined they are the answer."""
    body = chat_body("hi", max_tokens=40) | ASKED | {"response_format": forced("é漢🎭")}
    status, answer = tiny_server.post(CHAT, body)
    assert status == 200, answer
    entries = answer["choices"][0]["logprobs"]["content"]
    joined = b"".join(bytes(entry["bytes"] or ()) for entry in entries)
    assert joined.decode() == text_of(answer)
    assert entries_of_stream(tiny_server, body) == entries


def test_a5_likelihoods_do_not_depend_on_sampling(tiny_server: Program) -> None:
    """A5: they are the model's own, before truncation and temperature."""
    greedy = tiny_server.chat("hi", max_tokens=1, **ASKED)
    sharp = tiny_server.chat("hi", max_tokens=1, temperature=0.01, top_p=0.1, seed=1, **ASKED)
    first = [one["choices"][0]["logprobs"]["content"][0] for one in (greedy, sharp)]
    assert first[0] == first[1]


@pytest.mark.parametrize("fields", [{}, {"logprobs": False}, {"logprobs": None}])
def test_a5_none_unless_asked(tiny_server: Program, fields: dict[str, Any]) -> None:
    """A5: the key is there and null."""
    answer = tiny_server.chat("hi", max_tokens=2, **fields)
    assert answer["choices"][0]["logprobs"] is None
    streamed = stream(tiny_server, chat_body("hi", max_tokens=2, **fields))
    assert all(c["logprobs"] is None for chunk in streamed.chunks for c in chunk["choices"])
