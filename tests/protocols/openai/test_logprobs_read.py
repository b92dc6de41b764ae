"""Log-probabilities: asking for them, and their place in bodies and chunks."""

import math
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.events import Likely, TokenLogprobs
from mlxcel.protocols.openai.logprobs import logprobs_body
from tests.protocols.openai.reading import chat_read


@pytest.mark.parametrize(
    ("sent", "top"),
    [
        pytest.param({}, None, id="absent"),
        pytest.param({"logprobs": False}, None, id="off"),
        pytest.param({"logprobs": None, "top_logprobs": None}, None, id="null"),
        pytest.param({"logprobs": True}, 0, id="of-the-token-alone"),
        pytest.param({"logprobs": True, "top_logprobs": 0}, 0, id="none-beside"),
        pytest.param({"logprobs": True, "top_logprobs": 20}, 20, id="most"),
    ],
)
def test_what_is_asked_for(sent: dict[str, Any], top: int | None) -> None:
    assert chat_read(**sent).request.top_logprobs == top


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        pytest.param(
            {"logprobs": True, "top_logprobs": 21},
            "top_logprobs: wants a value of at most 20, got 21",
            id="too-many",
        ),
        pytest.param(
            {"logprobs": True, "top_logprobs": -1},
            "top_logprobs: wants a value of at least 0, got -1",
            id="negative",
        ),
        pytest.param(
            {"top_logprobs": 2}, "top_logprobs: wants logprobs: true beside it, got null", id="bare"
        ),
        pytest.param(
            {"logprobs": False, "top_logprobs": 0},
            "top_logprobs: wants logprobs: true beside it, got false",
            id="beside-false",
        ),
        pytest.param(
            {"top_logprobs": 21}, "top_logprobs: wants a value of at most 20, got 21", id="both"
        ),
        pytest.param(
            {"logprobs": True, "top_logprobs": 1.0},
            "top_logprobs: wants an integer, got number 1.0",
            id="float",
        ),
        pytest.param({"logprobs": 5}, "logprobs: wants a boolean, got integer 5", id="legacy"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(sent: dict[str, Any], message: str) -> None:
    with pytest.raises(BadField) as caught:
        chat_read(**sent)
    assert caught.value.message == message
    assert caught.value.param == message.split(":")[0]


def test_bytes_are_those_of_the_token_and_not_of_its_text() -> None:
    half = Likely("\ufffd", -0.5, b"\xc3")
    entry = logprobs_body([TokenLogprobs(half, (half, Likely("a", -1.0, b"a")))])["content"][0]
    assert entry == {
        "token": "\ufffd",
        "logprob": -0.5,
        "bytes": [195],
        "top_logprobs": [
            {"token": "\ufffd", "logprob": -0.5, "bytes": [195]},
            {"token": "a", "logprob": -1.0, "bytes": [97]},
        ],
    }


def test_a_banned_token_has_a_number_that_json_knows() -> None:
    said = Likely("a", -math.inf, b"a")
    assert logprobs_body([TokenLogprobs(said, ())])["content"][0]["logprob"] == -9999.0
