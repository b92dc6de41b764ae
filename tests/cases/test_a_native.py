"""Public faults, family A, on the native routes; limits on every route that says something."""

import math
from pathlib import Path
from typing import Any

import pytest

from tests.cases.asking import assert_error_object, stream
from tests.cases.routes import (
    INFILL,
    MARKED_ROUTES,
    MESSAGES,
    NATIVE,
    RESPONSES,
    Native,
    Route,
    name_of,
)
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

SEEN = {"content", "tokens", "stop", "stop_type", "tokens_predicted", "tokens_evaluated", "timings"}
FOREIGN = {"object", "choices", "usage", "created", "id", "error"}


@pytest.mark.parametrize("path", ["/completion", "/completions", "/infill"])
def test_a1_a_native_answer_has_nothing_of_the_other_shape(long_tiny: Program, path: str) -> None:
    """A1: clients tell the shapes apart by their keys, `object` first of all."""
    route = INFILL if path == INFILL.path else NATIVE
    status, answer = long_tiny.post(path, route.body("hi", max_tokens=4))
    assert status == 200
    assert set(answer) >= SEEN
    streamed = stream(long_tiny, route.body("hi", max_tokens=4), path=path)
    assert set(streamed.chunks[-1]) == set(answer)
    for frame in (answer, *streamed.chunks):
        assert not FOREIGN & set(frame)


LIMITS = [
    pytest.param({"max_tokens": 3}, 3, id="older-alone"),
    pytest.param({"n_predict": 3}, 3, id="llama-cpp-name"),
    pytest.param({"max_completion_tokens": 3}, 3, id="newer-alone"),
    pytest.param({"max_completion_tokens": None, "max_tokens": 3}, 3, id="newer-null"),
    pytest.param({"max_completion_tokens": 1}, 1, id="one"),
]


OWN_LIMITS = [
    (RESPONSES, {"max_output_tokens": 3}),
    (RESPONSES, {"max_tokens": 3}),
    (MESSAGES, {"max_tokens": 3}),
]
"""Routes that know no other names."""
NAMING = [route for route in MARKED_ROUTES if route not in (RESPONSES, MESSAGES)]


@pytest.mark.parametrize(("route", "limits"), OWN_LIMITS)
def test_a3_the_limit_holds_by_the_names_of_a_dialect(
    long_tiny: Program, route: Route, limits: dict[str, Any]
) -> None:
    for seen in (
        route.plain(long_tiny, "hi", **limits),
        route.streamed(long_tiny, "hi", **limits),
    ):
        assert (seen.reason, seen.counts[1]) == ("length", 3)


@pytest.mark.parametrize(("limits", "most"), LIMITS)
@pytest.mark.parametrize("route", NAMING, ids=name_of)
def test_a3_every_name_of_the_limit_holds_on_every_route(
    long_tiny: Program, route: Route, limits: dict[str, Any], most: int
) -> None:
    """A3: the newer name was ignored and output ran on. Plain and streamed."""
    for seen in (
        route.plain(long_tiny, "hi", **limits),
        route.streamed(long_tiny, "hi", **limits),
    ):
        assert (seen.reason, seen.counts[1]) == ("length", most)


@pytest.mark.parametrize("beside", ["n_predict", "max_tokens"])
def test_a3_two_names_of_the_native_limit_are_refused(long_tiny: Program, beside: str) -> None:
    """A3: which of them would win is not for the client to guess."""
    body = NATIVE.body("hi", max_completion_tokens=3) | {beside: 50}
    status, answer = long_tiny.post(NATIVE.path, body)
    assert status == 400
    assert_error_object(answer, param="max_completion_tokens")
    assert beside in answer["error"]["message"]


def test_a3_a_native_prompt_says_at_least_one_token(long_tiny: Program) -> None:
    """A3: it is read for that one."""
    assert NATIVE.plain(long_tiny, "hi", n_predict=0).counts[1] == 1


@pytest.mark.parametrize("spelling", ["n_probs", "logprobs"])
@pytest.mark.parametrize("route", [NATIVE, INFILL], ids=name_of)
def test_a5_native_probabilities_have_a_layout_of_their_own(
    long_tiny: Program, route: Native, spelling: str
) -> None:
    """A5: an entry for each token, best first, with its real bytes; streams carry their share."""
    body = route.body("hi", max_tokens=12, return_tokens=True, **{spelling: 2})
    status, answer = long_tiny.post(route.path, body)
    assert status == 200, answer
    entries = answer["completion_probabilities"]
    assert [entry["id"] for entry in entries] == answer["tokens"]
    for entry in entries:
        assert set(entry) == {"id", "token", "bytes", "logprob", "top_logprobs"}
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert (len(values), max(values)) == (2, entry["logprob"])
        assert all(value <= 0 and math.isfinite(value) for value in values)
        for one in (entry, *entry["top_logprobs"]):
            assert bytes(one["bytes"]).decode(errors="replace") == one["token"]
    said = bytes(byte for entry in entries for byte in entry["bytes"])
    assert said.decode(errors="replace") == answer["content"]
    *frames, last = stream(long_tiny, body, path=route.path).chunks
    shares = [frame["completion_probabilities"] for frame in frames]
    assert [entry for share in shares for entry in share] == entries
    assert [token for frame in frames for token in frame["tokens"]] == answer["tokens"]
    assert last["tokens"] == []


@pytest.mark.parametrize("fields", [{}, {"n_probs": 0}, {"logprobs": 0}, {"n_probs": None}])
def test_a5_no_probabilities_unless_asked(long_tiny: Program, fields: dict[str, Any]) -> None:
    """A5: the key is not there."""
    body = NATIVE.body("hi", max_tokens=2, **fields)
    assert "completion_probabilities" not in long_tiny.post(NATIVE.path, body)[1]
    frames = stream(long_tiny, body, path=NATIVE.path).chunks
    assert not any("completion_probabilities" in frame for frame in frames)


@pytest.mark.parametrize("name", ["gpt-4o", "", "/etc", None, "the-served-one"])
def test_a13_a_native_route_has_one_model(
    long_tiny: Program, long_folder: Path, name: str | None
) -> None:
    """A13: it asks for no name, and looks none up."""
    served = long_folder.name
    sent = served if name == "the-served-one" else name
    for route in (NATIVE, INFILL):
        status, answer = long_tiny.post(route.path, route.body("hi", model=sent, max_tokens=2))
        assert (status, answer["model"]) == (200, served)
