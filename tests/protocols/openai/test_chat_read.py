"""From a chat body to a request: model, sampling, lengths, stops, template kwargs."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField, ModelNotFound
from mlxcel.core.request import Lane
from mlxcel.protocols.openai import chat
from mlxcel.protocols.openai.sampling import draw_seed
from tests.protocols.openai.reading import DRAWN, chat_read
from tests.protocols.samples import RULES, SETTINGS


def test_left_out_fields_come_from_the_settings() -> None:
    request = chat_read().request
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.8, 0.95, 40)
    assert (sampling.min_p, sampling.seed, request.max_tokens) == (0.05, DRAWN, 512)
    assert (request.id, request.received_s, request.settings) == ("chatcmpl-0", 5.0, SETTINGS)


def test_null_is_as_good_as_absent_everywhere() -> None:
    names = (
        "stream stream_options temperature top_p top_k min_p seed max_tokens stop n logprobs "
        "tools tool_choice response_format chat_template_kwargs logit_bias user extra_body "
        "top_logprobs echo ignore_eos typical_p top_n_sigma xtc_probability xtc_threshold "
        "max_pattern_size min_pattern_size min_count thinking_budget reasoning_control"
    )
    assert chat_read(**dict.fromkeys(names.split())) == chat_read()


def test_sent_fields_win() -> None:
    sampling = chat_read(temperature=0, top_p=0.5, top_k=0, min_p=0, seed=7).request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 0.5, 0)
    assert (sampling.min_p, sampling.seed) == (0.0, 7)


@pytest.mark.parametrize(
    ("sent", "used"),
    [
        pytest.param({"temperature": -1}, ("temperature", 0.0), id="negative-temperature"),
        pytest.param({"temperature": 1e-300}, ("temperature", 0.0), id="vanishing-temperature"),
        pytest.param({"temperature": 1e308}, ("temperature", 1e5), id="endless-temperature"),
        pytest.param({"top_p": 1.5}, ("top_p", 1.0), id="top-p-above-one"),
        pytest.param({"min_p": -0.5}, ("min_p", 0.0), id="negative-min-p"),
        pytest.param({"top_k": 10**15}, ("top_k", 2**31 - 1), id="huge-top-k"),
    ],
)
def test_a_value_out_of_range_acts_as_the_nearest_one(
    sent: dict[str, Any], used: tuple[str, float]
) -> None:
    assert getattr(chat_read(**sent).request.sampling, used[0]) == used[1]


@pytest.mark.parametrize(
    ("sent", "used"),
    [
        pytest.param(0, 0, id="zero"),
        pytest.param(-1, DRAWN, id="minus-one-is-random"),
        pytest.param(2**32 - 1, DRAWN, id="minus-one-folded-is-random"),
        pytest.param(-2, 2**32 - 2, id="minus-two-is-fixed"),
        pytest.param(2**32 + 5, 5, id="folded"),
    ],
)
def test_seed_is_folded(sent: int, used: int) -> None:
    assert chat_read(seed=sent).request.sampling.seed == used


def test_seed_of_the_settings_is_used() -> None:
    settings = replace(SETTINGS, sampling=replace(SETTINGS.sampling, seed=11))
    assert chat_read(settings=settings).request.sampling.seed == 11


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        pytest.param({"max_tokens": 50}, 50, id="older-name"),
        pytest.param({"max_completion_tokens": 3}, 3, id="newer-name"),
        pytest.param({"n_predict": 4}, 4, id="native-name"),
        pytest.param({"max_tokens": 50, "max_completion_tokens": 3}, 3, id="newer-wins"),
        pytest.param({"max_tokens": 0}, 0, id="zero"),
        pytest.param({"max_tokens": 10**12}, 2**31 - 1, id="huge"),
    ],
)
def test_max_tokens(sent: dict[str, int], limit: int) -> None:
    assert chat_read(**sent).request.max_tokens == limit


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"max_tokens": 1, "n_predict": 1}, id="older-and-native"),
        pytest.param({"max_completion_tokens": 1, "n_predict": 1}, id="newer-and-native"),
        pytest.param({"repetition_penalty": 1.0, "repeat_penalty": 1.0}, id="penalty"),
        pytest.param({"max_tokens": -1}, id="negative-limit"),
        pytest.param({"max_tokens": 7.0}, id="limit-as-float"),
        pytest.param({"top_k": -1}, id="negative-top-k"),
        pytest.param({"temperature": "hot"}, id="temperature-as-string"),
        pytest.param({"stream": "yes"}, id="stream-as-string"),
        pytest.param({"stream": True, "stream_options": {"include_usage": 1}}, id="include-usage"),
        pytest.param({"stop": [1]}, id="stop-as-number"),
        pytest.param({"user": 7}, id="user-as-number"),
        pytest.param({"cache_prompt": "no"}, id="cache-prompt-as-string"),
        pytest.param({"xtc_threshold": 0.6}, id="xtc-threshold-out-of-range"),
        pytest.param({"chat_template_kwargs": []}, id="kwargs-as-array"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(sent: dict[str, Any]) -> None:
    with pytest.raises(BadField) as caught:
        chat_read(**sent)
    assert caught.value.param is not None
    assert caught.value.param.split(".")[0] in sent


@pytest.mark.parametrize(
    ("sent", "stops"),
    [
        pytest.param("a", ("a",), id="one-string"),
        pytest.param(["a", "b"], ("a", "b"), id="list"),
        pytest.param(["", "b"], ("b",), id="empty-one-dropped"),
        pytest.param([], (), id="empty-list"),
    ],
)
def test_stop(sent: object, stops: tuple[str, ...]) -> None:
    assert chat_read(stop=sent).request.stop == stops


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(["x"] * 64, id="as-many-as-allowed"),
        pytest.param("x" * 1024, id="as-long-as-allowed"),
    ],
)
def test_stop_strings_up_to_the_bounds_are_taken(sent: Any) -> None:
    assert chat_read(stop=sent).request.stop == ((sent,) if isinstance(sent, str) else tuple(sent))


@pytest.mark.parametrize(
    ("sent", "rule"),
    [
        pytest.param(["x"] * 65, "stop: wants at most 64 strings, got 65", id="many"),
        pytest.param(["a", "x" * 1025], "at most 1024 characters, got one of 1025", id="long"),
    ],
)
def test_stop_strings_beyond_the_bounds_are_refused(sent: Any, rule: str) -> None:
    with pytest.raises(BadField, match=rule):
        chat_read(stop=sent)


@pytest.mark.parametrize("n", [1, 2, 8])
def test_up_to_eight_choices(n: int) -> None:
    assert chat_read(n=n).request.choices == n
    assert chat_read().request.choices == 1


@pytest.mark.parametrize(
    ("n", "rule"),
    [
        pytest.param(9, "n: wants a value of at most 8, got 9", id="many"),
        pytest.param(0, "n: wants a value of at least 1, got 0", id="none"),
        pytest.param(-1, "n: wants a value of at least 1, got -1", id="negative"),
        pytest.param(2.0, r"n: wants an integer, got number 2\.0", id="float"),
        pytest.param(True, "n: wants an integer, got boolean true", id="boolean"),
    ],
)
def test_any_other_number_of_choices_is_refused(n: Any, rule: str) -> None:
    with pytest.raises(BadField, match=rule) as caught:
        chat_read(n=n)
    assert caught.value.param == "n"


@pytest.mark.parametrize(
    ("sent", "is_told_again"),
    [
        pytest.param({}, False, id="absent"),
        pytest.param({"echo": True}, True, id="root"),
        pytest.param({"extra_body": {"echo": True}}, True, id="nested"),
        pytest.param({"echo": False, "extra_body": {"echo": True}}, False, id="root-wins"),
        pytest.param({"echo": None, "extra_body": {"echo": True}}, True, id="null-is-absent"),
        pytest.param({"echo": "yes"}, False, id="wrong-type-is-absent"),
        pytest.param({"echo": 1, "extra_body": {"echo": True}}, True, id="wrong-type-at-the-root"),
        pytest.param({"extra_body": {"echo": "yes"}}, False, id="wrong-type-nested"),
    ],
)
def test_echo(sent: dict[str, Any], is_told_again: bool) -> None:
    assert chat_read(**sent).request.prompt.echo is is_told_again


def test_the_lane_is_handed_through() -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    rest: Any = {"request_id": "r", "settings": SETTINGS, "received_s": 0.0, "rules": RULES}
    assert chat.read(body, **rest, lane=Lane.LOW).request.lane is Lane.LOW
    assert chat.read(body, **rest).request.lane is Lane.NORMAL


def test_usage_is_asked_for_in_streams_only() -> None:
    options = {"include_usage": True}
    assert chat_read(stream=True, stream_options=options).include_usage
    assert not chat_read(stream_options=options).include_usage
    assert not chat_read(stream=True, stream_options={}).include_usage


def test_a_missing_model_is_refused_unless_the_recipe_says_so() -> None:
    with pytest.raises(BadField, match="model: is required"):
        chat_read(model=None)
    assert chat_read(model=None, rules=replace(RULES, require_model=False))


def test_an_unknown_model_is_accepted_or_not_found() -> None:
    assert chat_read(model="gpt-4o")
    strict = replace(RULES, refuse_unknown=True)
    for name in RULES.served:
        assert chat_read(model=name, rules=strict)
    with pytest.raises(ModelNotFound, match="served: tiny, alias"):
        chat_read(model="gpt-4o", rules=strict)


@pytest.mark.parametrize(
    ("sent", "kwargs"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param(
            {"chat_template_kwargs": {"enable_thinking": False}},
            {"enable_thinking": False},
            id="root",
        ),
        pytest.param(
            {"chat_template_kwargs": {}, "extra_body": {"chat_template_kwargs": {"a": 1}}},
            {},
            id="empty-root-is-final",
        ),
        pytest.param(
            {"extra_body": {"chat_template_kwargs": {"a": 1}, "preserve_thinking": True}},
            {"a": 1},
            id="nested-object-before-single-key",
        ),
        pytest.param(
            {"extra_body": {"preserve_thinking": True}},
            {"preserve_thinking": True},
            id="nested-single-key",
        ),
        pytest.param(
            {"preserve_thinking": False, "extra_body": {"preserve_thinking": True}},
            {"preserve_thinking": False},
            id="flattened-wins",
        ),
        pytest.param({"preserve_thinking": "yes"}, {}, id="non-boolean-is-unset"),
        pytest.param({"reasoning_effort": "low"}, {"reasoning_effort": "low"}, id="effort"),
        pytest.param(
            {"extra_body": {"reasoning_effort": "low"}},
            {"reasoning_effort": "low"},
            id="nested-effort",
        ),
        pytest.param(
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            {"reasoning_effort": "high"},
            id="explicit-kwarg-over-effort",
        ),
        pytest.param({"reasoning_effort": ""}, {}, id="empty-effort-is-absent"),
        pytest.param(
            {"reasoning_effort": "", "extra_body": {"reasoning_effort": "low"}},
            {"reasoning_effort": "low"},
            id="empty-effort-falls-to-nested",
        ),
    ],
)
def test_template_kwargs_are_what_was_sent(sent: dict[str, Any], kwargs: dict[str, Any]) -> None:
    assert chat_read(**sent).request.prompt.kwargs == kwargs


def nest(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    "sent",
    [pytest.param({"x": "y" * 65_000}, id="size"), pytest.param(nest(32), id="depth")],
)
def test_template_kwargs_up_to_the_bounds_are_taken(sent: dict[str, Any]) -> None:
    assert chat_read(chat_template_kwargs=sent).request.prompt.kwargs == sent


@pytest.mark.parametrize(
    ("sent", "rule"),
    [
        pytest.param({"x": "y" * 65_536}, "more than 65536 characters", id="size"),
        pytest.param({str(i): i for i in range(50_000)}, "more than 65536", id="many-keys"),
        pytest.param({"x": [1] * 40_000}, "more than 65536", id="many-items"),
        pytest.param(nest(33), "nested deeper than 32 levels", id="depth"),
        pytest.param({"x": [[nest(1000)]]}, "nested deeper than 32 levels", id="far-too-deep"),
    ],
)
@pytest.mark.parametrize("place", ["chat_template_kwargs", "extra_body.chat_template_kwargs"])
def test_template_kwargs_beyond_the_bounds_are_refused(
    sent: dict[str, Any], rule: str, place: str
) -> None:
    body = {"chat_template_kwargs": sent}
    with pytest.raises(BadField, match=rule) as caught:
        chat_read(**(body if "." not in place else {"extra_body": body}))
    assert caught.value.param == place


EMPTY = [{"role": "user", "content": " "}]
IN_ORDER: list[tuple[str, dict[str, Any]]] = [
    ("n", {"n": "2"}),
    ("messages", {"messages": EMPTY}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("xtc_threshold", {"xtc_threshold": 0.6}),
    ("xtc_probability", {"xtc_probability": 2}),
    ("top_n_sigma", {"top_n_sigma": -1}),
    ("typical_p", {"typical_p": 0}),
]
"""What is wrong, in the order of the contract (http-openai 3, rows 2 to 9)."""


@pytest.mark.parametrize("first", range(len(IN_ORDER)), ids=[name for name, _ in IN_ORDER])
def test_the_first_check_that_fails_is_told(first: int) -> None:
    sent = {key: value for _, fields in IN_ORDER[first:] for key, value in fields.items()}
    with pytest.raises(BadField) as caught:
        chat_read(**sent)
    assert caught.value.param == IN_ORDER[first][0]


@pytest.mark.parametrize("name", ["stop", "thinking_budget", "ignore_eos", "logit_bias", "seed"])
def test_types_are_looked_at_before_values(name: str) -> None:
    with pytest.raises(BadField) as caught:
        chat_read(messages=EMPTY, xtc_threshold=9, **{name: 0.5})
    assert caught.value.param == name


def test_an_integer_that_no_parser_keeps_is_told_the_range() -> None:
    rule = "seed: wants an integer from -9223372036854775808 to 18446744073709551615, got"
    with pytest.raises(BadField, match=rule):
        chat_read(seed=float(2**70))


def test_drawn_seeds_differ() -> None:
    assert len({draw_seed() for _ in range(8)}) > 1
