"""Public faults, family B, on every route that says something: what its stream holds."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases.asking import await_idle, opened, stream
from tests.cases.routes import (
    INFILL,
    MESSAGES,
    NATIVE,
    RESPONSES,
    ROUTES,
    TEXTS,
    Native,
    Route,
    Seen,
    name_of,
)
from tests.cases.test_b_streams import ENDINGS, FORCED_TEXTS, REPLACEMENT, STOPS
from tests.cases.test_b_streams import TEXTS as WORDS
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

OTHERS = [TEXTS, NATIVE, RESPONSES, MESSAGES]
BESIDE_CHAT = pytest.mark.parametrize("route", OTHERS, ids=name_of)
BESIDE_CHAT_MARKED = pytest.mark.parametrize("route", [*OTHERS, INFILL], ids=name_of)
NATIVES = pytest.mark.parametrize("route", [NATIVE, INFILL], ids=name_of)
NO_BLANK = {"logit_bias": {str(ord(" ")): -100}}
"""Where one blank may stand the model would have a choice."""


def const(text: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"t": {"const": text}},
        "required": ["t"],
        "additionalProperties": False,
    }


def assert_grows_to(seen: Seen, shown: str) -> None:
    """At no moment was more said than what is shown in the end."""
    for count in range(len(seen.pieces) + 1):
        assert shown.startswith("".join(seen.pieces[:count]))
    assert seen.text == shown


@BESIDE_CHAT
@pytest.mark.parametrize("text", WORDS)
def test_b2_characters_of_several_tokens_come_whole(echo: Program, route: Route, text: str) -> None:
    """B2: here each byte is a token."""
    seen = route.streamed(echo, text, max_tokens=120)
    assert seen.text == text == route.plain(echo, text, max_tokens=120).text
    assert not any(REPLACEMENT in piece for piece in seen.pieces)


@BESIDE_CHAT
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 8, 11, 12, 16, 24])
def test_b2_a_cut_inside_a_character_is_the_same_in_both_forms(
    echo: Program, route: Route, limit: int
) -> None:
    """B2: with no half of a character shown before the cut."""
    text = "é漢🎭👩‍👩‍👧"
    whole = route.plain(echo, text, max_tokens=limit).text
    assert route.streamed(echo, text, max_tokens=limit).text == whole
    assert whole.rstrip(REPLACEMENT) == text.encode()[:limit].decode(errors="ignore")


@BESIDE_CHAT_MARKED
def test_b2_broken_output_of_a_model_is_valid_on_the_wire(long_tiny: Program, route: Route) -> None:
    """B2: random bytes out of the model are the same UTF-8 in both forms."""
    seen = route.streamed(long_tiny, "漢字", max_tokens=80)
    assert seen.text == route.plain(long_tiny, "漢字", max_tokens=80).text
    assert REPLACEMENT in seen.text
    seen.text.encode("utf-8")


@BESIDE_CHAT
@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
def test_b2_half_a_surrogate_in_the_request_is_refused(
    echo: Program, route: Route, asked_stream: bool
) -> None:
    """B2: what cannot be UTF-8 never reaches the model."""
    with opened(echo, route.body("\ud83d", stream=asked_stream), path=route.path) as response:
        assert response.status == 400
        assert b'"error"' in response.read()


@BESIDE_CHAT_MARKED
@pytest.mark.parametrize("text", FORCED_TEXTS)
def test_b2_characters_a_real_model_was_made_to_say(
    long_tiny: Program, route: Route, text: str
) -> None:
    """B2: joined and parsed the text is exact."""
    fields = {**route.form(const(text)), "max_tokens": 120}
    seen = route.streamed(long_tiny, "hi", **fields)
    assert json.loads(seen.text) == {"t": text}
    assert not any(REPLACEMENT in piece for piece in seen.pieces)
    assert seen.reason == "stop"
    assert route.plain(long_tiny, "hi", **fields).text == seen.text


@NATIVES
def test_b2_ids_of_pieces_are_all_that_was_said(long_tiny: Program, route: Native) -> None:
    """B2: what is held back until a character is whole keeps its token ids."""
    body = route.body("hi", max_tokens=60, return_tokens=True)
    whole = long_tiny.post(route.path, body)[1]
    frames = stream(long_tiny, body, path=route.path).chunks
    assert [token for frame in frames for token in frame["tokens"]] == whole["tokens"]
    assert bytes(whole["tokens"]).decode(errors="replace") == whole["content"]


@BESIDE_CHAT
@pytest.mark.parametrize(("text", "stop", "shown"), STOPS)
def test_b4_no_piece_shows_a_stop_string(
    echo: Program, route: Route, text: str, stop: Any, shown: str
) -> None:
    """B4: stop strings were parsed and never used."""
    seen = route.streamed(echo, text, stop=stop)
    assert_grows_to(seen, shown)
    assert seen.reason == "stop"
    plain = route.plain(echo, text, stop=stop)
    assert (plain.text, plain.reason) == (shown, "stop")


@BESIDE_CHAT_MARKED
def test_b4_stops_in_a_real_models_text(long_tiny: Program, route: Route) -> None:
    """B4: any piece of an answer, sent as a stop, ends it before that piece first appears."""
    whole = route.plain(long_tiny, "stops", max_tokens=40).text
    rng = random.Random(4)
    tried = 0
    while tried < 4:
        start = rng.randrange(len(whole) - 5)
        stop = whole[start : start + rng.randint(1, 4)]
        if REPLACEMENT in stop:
            continue
        tried += 1
        seen = route.streamed(long_tiny, "stops", max_tokens=40, stop=[stop])
        assert (seen.text, seen.reason) == (whole[: whole.index(stop)], "stop")


@NATIVES
@pytest.mark.parametrize(
    ("stop", "shown", "word"),
    [
        pytest.param(["-c"], '{"t":"ab', "-c", id="the-case"),
        pytest.param(["zz", "d-e", "-c"], '{"t":"ab', "-c", id="earliest-of-several"),
        pytest.param(['"}'], '{"t":"ab-cd-ef', '"}', id="at-the-end"),
        pytest.param(["{"], "", "{", id="at-the-start"),
        pytest.param(["-x"], '{"t":"ab-cd-ef"}', "", id="no-match"),
    ],
)
def test_b4_the_stop_that_matched_is_named(
    long_tiny: Program, route: Native, stop: list[str], shown: str, word: str
) -> None:
    """B4: as Anthropic does, with its own words for it."""
    fields = {**route.form(const("ab-cd-ef")), **NO_BLANK, "stop": stop, "max_tokens": 60}
    body = route.body("hi", **fields)
    whole = long_tiny.post(route.path, body)[1]
    streamed = stream(long_tiny, body, path=route.path)
    assert_grows_to(route.joined(streamed), shown)
    assert whole["content"] == shown
    for told in (whole, streamed.chunks[-1]):
        assert (told["stop_type"], told["stopping_word"]) == ("word" if word else "eos", word)


@BESIDE_CHAT_MARKED
def test_b4_a_match_frees_the_slot(long_tiny: Program, route: Route) -> None:
    """B4: the model does not go on behind an answer that has ended."""
    first = route.plain(long_tiny, "slot", max_tokens=24).text.replace(REPLACEMENT, "")
    seen = route.plain(long_tiny, "slot", max_tokens=30000, stop=[first[:1]])
    assert seen.reason == "stop"
    await_idle(long_tiny, 1.0)


@BESIDE_CHAT
@pytest.mark.parametrize(("fields", "reason"), ENDINGS)
def test_b6_counts_are_those_of_the_plain_answer(
    echo: Program, route: Route, fields: dict[str, Any], reason: str
) -> None:
    """B6: in the one chunk, or frame, that has them."""
    seen = route.streamed(echo, "ab-cd-ef", **fields)
    plain = route.plain(echo, "ab-cd-ef", **fields)
    assert seen.reason == plain.reason == reason
    if "stop" in fields:  # the count depends on how soon the cancel arrives
        assert seen.counts[0] == plain.counts[0]
    else:
        assert seen.counts == plain.counts


@pytest.mark.parametrize("options", [None, {}, {"include_usage": True}, {"include_usage": False}])
def test_b6_a_native_stream_needs_no_usage_chunk(echo: Program, options: Any) -> None:
    """B6: its last frame has the counts, whatever is asked for."""
    streamed = stream(echo, NATIVE.body("hi", stream_options=options), path=NATIVE.path)
    assert not any("usage" in frame for frame in streamed.chunks)
    assert NATIVE.joined(streamed).counts == NATIVE.plain(echo, "hi").counts


@pytest.mark.parametrize(("fields", "reason"), ENDINGS)
def test_b8_a_native_reason_is_told_once_and_last(
    echo: Program, fields: dict[str, Any], reason: str
) -> None:
    """B8: `stop` is false on every frame but the last, and only that one says why."""
    frames = stream(echo, NATIVE.body("ab-cd-ef", **fields), path=NATIVE.path).chunks
    assert [frame["stop"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert not any("stop_type" in frame for frame in frames[:-1])
    assert NATIVE.reasons[frames[-1]["stop_type"]] == reason


@pytest.fixture(scope="module")
def faulty() -> Iterator[Program]:
    """Fails in mid-stream when the prompt asks for it."""
    faults = "engine.faults=[{when: fault, at_token: 3, kind: error}]"
    with Program("model=echo", faults) as program:
        yield program


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_b8_a_stream_that_fails_ends_in_its_own_words(faulty: Program, route: Route) -> None:
    """B8's kind: one error object, in the last frame, and no reason that means success."""
    route.assert_failed(stream(faulty, route.body("a fault here"), path=route.path))
    status, answer = faulty.post(route.path, route.body("a fault here"))
    assert (status, answer["error"]["type"]) == (500, route.failed_type)
