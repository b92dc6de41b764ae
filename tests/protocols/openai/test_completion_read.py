"""From a body of /v1/completions to its requests (contract http-openai, 10.3)."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from mlxcel.core.cache import CacheUse
from mlxcel.core.errors import BadField, BadRequest, ModelNotFound
from mlxcel.core.output import OutputKind
from mlxcel.core.request import TextPrompt
from tests.protocols.openai.reading import DRAWN, chat_read, completion_read
from tests.protocols.samples import RULES, SETTINGS

SAMPLING = {
    "temperature": 0.5,
    "top_p": 0.4,
    "top_k": 3,
    "min_p": 0.1,
    "typical_p": 0.9,
    "top_n_sigma": 2,
    "xtc_probability": 0.2,
    "xtc_threshold": 0.3,
    "repeat_penalty": 1.1,
    "repeat_last_n": 5,
    "frequency_penalty": 0.6,
    "presence_penalty": 0.7,
    "logit_bias": {"5": 1},
    "seed": 9,
    "dry_multiplier": 0.8,
    "dry_sequence_breakers": [4],
}
REST = {
    "max_completion_tokens": 6,
    "stop": ["x"],
    "n": 3,
    "min_count": 2,
    "thinking_budget": 4,
    "ignore_eos": True,
    "response_format": {"type": "json_object"},
}


def test_left_out_fields_come_from_the_settings() -> None:
    request = completion_read().request
    assert request.prompt == TextPrompt(text="hi")
    assert (request.id, request.max_tokens, request.choices) == ("cmpl-0", 512, 1)
    assert (request.top_logprobs, request.scores_prompt, request.output) == (None, False, None)
    assert (request.sampling.temperature, request.sampling.seed) == (0.8, DRAWN)


def test_shared_fields_mean_what_they_mean_in_a_chat() -> None:
    text, chat = completion_read(**SAMPLING, **REST).request, chat_read(**SAMPLING, **REST).request
    assert replace(text, prompt=chat.prompt, id=chat.id) == chat
    assert text.output is not None
    assert text.output.kind is OutputKind.JSON_OBJECT


def test_null_is_as_good_as_absent_everywhere() -> None:
    names = "stream stream_options logprobs echo suffix best_of user cache_prompt reasoning_control"
    every = (*names.split(), *SAMPLING, *REST, "max_tokens", "thinking_budget_tokens")
    assert completion_read(**dict.fromkeys(every)) == completion_read()


@pytest.mark.parametrize(
    ("sent", "top", "scores_prompt"),
    [
        pytest.param({}, None, False, id="none"),
        pytest.param({"logprobs": 0}, 0, False, id="of-the-token-alone"),
        pytest.param({"logprobs": 5}, 5, False, id="most"),
        pytest.param({"echo": True}, None, False, id="echo-alone"),
        pytest.param({"echo": True, "logprobs": 0}, 0, True, id="echo-with-scores"),
        pytest.param({"echo": False, "logprobs": 1}, 1, False, id="no-echo"),
    ],
)
def test_scores(sent: dict[str, Any], top: int | None, scores_prompt: bool) -> None:
    request = completion_read(**sent).request
    assert (request.top_logprobs, request.scores_prompt) == (top, scores_prompt)
    assert isinstance(request.prompt, TextPrompt)
    assert request.prompt.echo is sent.get("echo", False)


def test_scores_alone_need_no_token() -> None:
    request = completion_read(echo=True, logprobs=1, max_tokens=0, prompt=[5, 6]).request
    assert (request.max_tokens, request.scores_prompt) == (0, True)


def test_each_prompt_is_a_request_of_its_own() -> None:
    seeds = count(1)
    read = completion_read(prompt=["a", "a", "b"], n=2, echo=True, draw=lambda: next(seeds))
    assert [request.id for request in read.requests] == ["cmpl-0", "cmpl-0-1", "cmpl-0-2"]
    assert [request.choices for request in read.requests] == [2, 2, 2]
    assert [request.sampling.seed for request in read.requests] == [1, 2, 3]
    prompts = [request.prompt for request in read.requests]
    assert [prompt.echo for prompt in prompts if isinstance(prompt, TextPrompt)] == [True] * 3


def test_a_seed_that_was_sent_is_that_of_every_prompt() -> None:
    requests = completion_read(prompt=["a", "b"], seed=7).requests
    assert [request.sampling.seed for request in requests] == [7, 7]


def test_what_the_page_ignores_changes_nothing() -> None:
    sent = {"suffix": "x", "best_of": 3}
    read = completion_read(**sent, reasoning_control=True, stream=True, something_new=[1])
    assert read == completion_read(stream=True)
    assert read.request.cache == CacheUse()


@pytest.mark.parametrize(
    ("sent", "cache"),
    [
        ({"user": "u"}, CacheUse(session="u")),
        ({"user": "u", "prompt_cache_key": "k"}, CacheUse(session="k")),
        ({"cache_prompt": False}, CacheUse(is_on=False)),
    ],
)
def test_whose_cache_is_used(sent: dict[str, Any], cache: CacheUse) -> None:
    requests = completion_read(prompt=["a", "b"], **sent).requests
    assert [request.cache for request in requests] == [cache, cache]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"logprobs": 6}, id="logprobs-above-five"),
        pytest.param({"logprobs": -1}, id="logprobs-below-zero"),
        pytest.param({"logprobs": True}, id="logprobs-as-boolean"),
        pytest.param({"n": 9}, id="n-above-eight"),
        pytest.param({"n": 0}, id="n-zero"),
        pytest.param({"echo": 1}, id="echo-as-number"),
        pytest.param({"suffix": 1}, id="suffix-as-number"),
        pytest.param({"best_of": "2"}, id="best-of-as-string"),
        pytest.param({"user": 7}, id="user-as-number"),
        pytest.param({"cache_prompt": "no"}, id="cache-prompt-as-string"),
        pytest.param({"reasoning_control": "yes"}, id="reasoning-control-as-string"),
        pytest.param({"thinking_budget_tokens": -2}, id="budget"),
        pytest.param({"response_format": {"type": "xml"}}, id="form"),
        pytest.param({"stop": 5}, id="stop"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(sent: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        completion_read(**sent)
    assert caught.value.param is not None
    assert caught.value.param.split(".")[0] in sent


IN_ORDER: list[tuple[str, dict[str, Any]]] = [
    ("best_of", {"best_of": "2"}),
    ("prompt", {"prompt": " "}),
    ("logprobs", {"logprobs": 6}),
    ("xtc_threshold", {"xtc_threshold": 0.6}),
    ("xtc_probability", {"xtc_probability": 2}),
    ("top_n_sigma", {"top_n_sigma": -1}),
    ("typical_p", {"typical_p": 0}),
    ("thinking_budget_tokens", {"thinking_budget_tokens": -2}),
    ("response_format.type", {"response_format": {"type": "xml"}}),
]
"""What is wrong, in the order of the contract."""


@pytest.mark.parametrize("first", range(len(IN_ORDER)), ids=[name for name, _ in IN_ORDER])
def test_the_first_check_that_fails_is_told(first: int) -> None:
    sent = {key: value for _, fields in IN_ORDER[first:] for key, value in fields.items()}
    with pytest.raises(BadRequest) as caught:
        completion_read(**sent)
    assert caught.value.param == IN_ORDER[first][0]


def test_model_is_required_and_may_have_to_be_known() -> None:
    with pytest.raises(BadField, match="model: is required"):
        completion_read(model=None)
    assert completion_read(model=None, rules=replace(RULES, require_model=False))
    with pytest.raises(ModelNotFound):
        completion_read(model="gpt", rules=replace(RULES, refuse_unknown=True))


def test_streams_are_not_counted() -> None:
    assert completion_read().is_counted
    assert not completion_read(stream=True).is_counted
    assert chat_read(stream=True).is_counted


def test_the_settings_are_kept_with_each_request() -> None:
    requests = completion_read(prompt=["a", "b"]).requests
    assert [request.settings for request in requests] == [SETTINGS, SETTINGS]
