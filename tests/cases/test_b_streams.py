"""Public faults, family B: what a stream holds (its transport: test_b_transport.py)."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases.asking import (
    CHAT,
    DONE,
    await_idle,
    opened,
    stream,
    stream_chat,
)
from tests.whole.program import Program, chat_body, text_of
from tests.whole.schemas import forced

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

REPLACEMENT = "\ufffd"

TEXTS = [
    pytest.param("é漢🎭👩‍👩‍👧", id="the-case"),
    pytest.param("👩‍👩‍👧", id="ends-inside-a-family"),
    pytest.param("🇩🇪🏳️‍🌈", id="flags"),
    pytest.param("e\u0301n\u0303", id="combining-marks"),
    pytest.param("مرحبا שלום", id="right-to-left"),
    pytest.param("𝔘𝔫𝔦", id="beyond-the-basic-plane"),
    pytest.param("a\x00b\x1f\x7f", id="control-characters"),
    pytest.param("\u2028line\u2029\r\nend\n\ndata: x", id="line-separators"),
    pytest.param("\ufeffbom", id="byte-order-mark"),
    pytest.param('"\\/\t', id="json-escapes"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_b2_characters_of_several_tokens_come_whole(echo: Program, text: str) -> None:
    """B2: emoji came out as the replacement mark; here each byte is a token.

    https://github.com/Blaizzy/mlx-vlm/pull/1076
    """
    streamed = stream_chat(echo, text, max_tokens=120)
    assert streamed.text == text
    assert not any(REPLACEMENT in delta for delta in streamed.deltas)
    assert text_of(echo.chat(text, max_tokens=120)) == text


@pytest.mark.parametrize("limit", range(1, 25))
def test_b2_a_cut_inside_a_character_is_the_same_in_both_forms(echo: Program, limit: int) -> None:
    """B2: at every limit the stream joined is the plain text, with no half of a character
    shown before the cut."""
    text = "é漢🎭👩‍👩‍👧"
    streamed = stream_chat(echo, text, max_tokens=limit)
    whole = text_of(echo.chat(text, max_tokens=limit))
    assert streamed.text == whole
    complete = text.encode()[:limit].decode(errors="ignore")
    assert whole.rstrip(REPLACEMENT) == complete


def test_b2_broken_output_of_a_model_is_valid_on_the_wire(tiny_server: Program) -> None:
    """B2: random bytes out of the model are still UTF-8 and JSON, the same in both forms."""
    for prompt in ("hi", "emoji", "漢字"):
        streamed = stream_chat(tiny_server, prompt, max_tokens=120)
        assert streamed.text == text_of(tiny_server.chat(prompt, max_tokens=120))
        # A lone half of a surrogate pair would not encode.
        streamed.text.encode("utf-8")


@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
def test_b2_half_a_surrogate_in_the_request_is_refused(echo: Program, asked_stream: bool) -> None:
    """B2: what cannot be UTF-8 never reaches the model."""
    with opened(echo, chat_body("\ud83d", stream=asked_stream)) as response:
        assert response.status == 400
        assert b'"error"' in response.read()


FORCED_TEXTS = (
    "é漢🎭👩‍👩‍👧",
    "👩‍👩‍👧",
    "e\u0301n\u0303",
    "𝔘𝔫𝔦",
    "\u2028line\r\nend\n\ndata: x",
    '"\\/\t',
)


@pytest.mark.parametrize("text", FORCED_TEXTS)
def test_b2_characters_a_real_model_was_made_to_say(tiny_server: Program, text: str) -> None:
    """B2: out of the model itself, a byte at a time; joined and parsed the text is exact."""
    fields = {"response_format": forced(text), "max_tokens": 120}
    streamed = stream_chat(tiny_server, "hi", **fields)
    assert json.loads(streamed.text) == {"t": text}
    assert not any(REPLACEMENT in delta for delta in streamed.deltas)
    assert streamed.reasons == ["stop"]
    assert text_of(tiny_server.chat("hi", **fields)) == streamed.text


STOPS = [
    pytest.param("ab-cd-ef", ["-c"], "ab", id="the-case"),
    pytest.param("ab-cd-ef", "-c", "ab", id="string"),
    pytest.param("ab-cd-ef", ["zz", "-e", "-c"], "ab", id="earliest-of-several"),
    pytest.param("ab-cd-ef", ["b-", "b-cd"], "a", id="one-inside-another"),
    pytest.param("ab-cd-ef", ["ab"], "", id="at-the-start"),
    pytest.param("ab-cd-ef", ["ef"], "ab-cd-", id="at-the-end"),
    pytest.param("ab-cd-ef", ["ab-cd-ef"], "", id="everything"),
    pytest.param("aaab", ["aab"], "a", id="begins-twice"),
    pytest.param("x\n\n\ny", ["\n\ny"], "x\n", id="newlines"),
    pytest.param("a🎭b👩‍👩‍👧c", ["👩‍👧"], "a🎭b👩‍", id="inside-a-family"),
    pytest.param("naïve café", ["é"], "naïve caf", id="two-byte-character"),
    pytest.param("ab-cd-ef", ["-x"], "ab-cd-ef", id="no-match-releases-what-was-held"),
    pytest.param("ab-cd-ef-", ["-g"], "ab-cd-ef-", id="held-at-the-end"),
    pytest.param("ab", [""], "ab", id="empty-string-matches-nothing"),
]


@pytest.mark.parametrize(("text", "stop", "shown"), STOPS)
def test_b4_no_delta_shows_a_stop_string(echo: Program, text: str, stop: Any, shown: str) -> None:
    """B4: stop strings were parsed and never used.

    https://github.com/lablup/mlxcel/issues/1466
    """
    streamed = stream_chat(echo, text, stop=stop)
    for count in range(len(streamed.deltas) + 1):
        assert shown.startswith("".join(streamed.deltas[:count]))
    assert streamed.text == shown
    assert streamed.reasons == ["stop"]
    answer = echo.chat(text, stop=stop)
    assert text_of(answer) == shown
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_b4_stops_in_a_real_models_text(tiny_server: Program) -> None:
    """B4: any piece of an answer, sent as a stop, ends it before that piece first appears."""
    whole = text_of(tiny_server.chat("stops", max_tokens=60))
    rng = random.Random(4)
    for _ in range(12):
        start = rng.randrange(len(whole) - 5)
        stop = whole[start : start + rng.randint(1, 4)]
        if REPLACEMENT in stop:
            continue
        streamed = stream_chat(tiny_server, "stops", max_tokens=60, stop=[stop])
        assert streamed.text == whole[: whole.index(stop)]
        assert streamed.reasons == ["stop"]


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        pytest.param(["-c"], '{"t":"ab', id="the-case"),
        pytest.param(["zz", "d-e", "-c"], '{"t":"ab', id="earliest-of-several"),
        pytest.param(['"}'], '{"t":"ab-cd-ef', id="at-the-end"),
        pytest.param(["{"], "", id="at-the-start"),
        pytest.param(["-x"], '{"t":"ab-cd-ef"}', id="no-match"),
    ],
)
def test_b4_a_stop_inside_a_forced_answer(
    tiny_server: Program, stop: list[str], shown: str
) -> None:
    """B4: what a schema forces is stopped like any other text."""
    fields = {
        "response_format": forced("ab-cd-ef"),
        "max_tokens": 60,
        "stop": stop,
        # Where one blank may stand the model would have a choice.
        "logit_bias": {str(ord(" ")): -100},
    }
    streamed = stream_chat(tiny_server, "hi", **fields)
    for count in range(len(streamed.deltas) + 1):
        assert shown.startswith("".join(streamed.deltas[:count]))
    assert (streamed.text, streamed.reasons) == (shown, ["stop"])
    assert text_of(tiny_server.chat("hi", **fields)) == shown


def test_b4_a_match_frees_the_slot(long_tiny: Program) -> None:
    """B4: the model does not go on behind an answer that has ended."""
    first = text_of(long_tiny.chat("slot", max_tokens=24)).replace(REPLACEMENT, "")
    answer = long_tiny.chat("slot", max_tokens=30000, stop=[first[:1]])
    assert answer["choices"][0]["finish_reason"] == "stop"
    await_idle(long_tiny, 1.0)


ENDINGS = [
    pytest.param({"max_tokens": 5}, "length", id="length"),
    pytest.param({"max_tokens": 1}, "length", id="one-token"),
    pytest.param({}, "stop", id="end-of-text"),
    pytest.param({"stop": ["-c"]}, "stop", id="stop-string"),
    pytest.param({"stop": ["ab"]}, "stop", id="stop-string-and-no-text"),
]


@pytest.mark.parametrize(("fields", "reason"), ENDINGS)
def test_b6_usage_is_one_chunk_before_done(
    echo: Program, fields: dict[str, Any], reason: str
) -> None:
    """B6: `include_usage` had no effect. https://github.com/jundot/omlx/issues/61"""
    options = {"stream_options": {"include_usage": True}}
    streamed = stream_chat(echo, "ab-cd-ef", **fields, **options)
    empty = [chunk for chunk in streamed.chunks if chunk["choices"] == []]
    assert empty == [streamed.chunks[-1]]
    assert streamed.payloads[-1] == DONE
    usage = empty[0]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert all(chunk.get("usage") is None for chunk in streamed.chunks[:-1])
    plain = echo.chat("ab-cd-ef", **fields)
    assert plain["choices"][0]["finish_reason"] == reason
    if "stop" not in fields:  # the count depends on how soon the cancel arrives
        assert usage == plain["usage"]
    assert usage["prompt_tokens"] == plain["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="absent"),
        pytest.param({"stream_options": None}, id="null"),
        pytest.param({"stream_options": {}}, id="empty"),
        pytest.param({"stream_options": {"include_usage": False}}, id="false"),
        pytest.param({"stream_options": {"include_usage": None}}, id="null-inside"),
    ],
)
def test_b6_no_usage_chunk_unless_asked(echo: Program, fields: dict[str, Any]) -> None:
    """B6: clients that index `choices[0]` do not expect the extra chunk."""
    streamed = stream_chat(echo, "hi", **fields)
    assert all(chunk["choices"] for chunk in streamed.chunks)
    assert all(chunk.get("usage") is None for chunk in streamed.chunks)


@pytest.mark.parametrize("include_usage", [True, False], ids=["usage", "no-usage"])
@pytest.mark.parametrize(("fields", "reason"), ENDINGS)
def test_b8_finish_reason_is_null_until_the_end(
    echo: Program, fields: dict[str, Any], reason: str, include_usage: bool
) -> None:
    """B8: an empty string stood where null belongs.

    https://github.com/ollama/ollama/issues/4357
    """
    options = {"stream_options": {"include_usage": include_usage}}
    streamed = stream_chat(echo, "ab-cd-ef", **fields, **options)
    choices = [choice for chunk in streamed.chunks for choice in chunk["choices"]]
    assert all("finish_reason" in choice for choice in choices)
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == reason


def test_b8_each_stream_names_its_role_once_and_first(echo: Program) -> None:
    """B8's kind: keys of a chunk that clients rely on."""
    streamed = stream_chat(echo, "hi", max_tokens=4)
    choices = [choice for chunk in streamed.chunks for choice in chunk["choices"]]
    assert choices[0]["delta"]["role"] == "assistant"
    assert not any("role" in choice["delta"] for choice in choices[1:])
    heads = {(c["id"], c["model"], c["created"]) for c in streamed.chunks}
    assert len(heads) == 1


@pytest.fixture(scope="module")
def faulty() -> Iterator[Program]:
    """Fails in mid-stream when the message asks for it."""
    with Program(
        "model=echo", "engine.faults=[{when: fault, at_token: 3, kind: error}]"
    ) as program:
        yield program


def test_b8_a_stream_that_fails_has_no_reason_and_no_done(faulty: Program) -> None:
    """B8's kind: a failure is an error object, never an end that means success."""
    streamed = stream(faulty, chat_body("a fault here"))
    assert "error" in streamed.chunks[-1]
    assert not streamed.is_done
    choices = [choice for chunk in streamed.chunks[:-1] for choice in chunk["choices"]]
    assert {choice["finish_reason"] for choice in choices} == {None}
    assert faulty.post(CHAT, chat_body("a fault here"))[0] == 500
