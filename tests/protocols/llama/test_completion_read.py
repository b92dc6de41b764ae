"""From the body of a native completion to a request: what stands beside the sampling."""

import math
from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField, BadRequest, MlxcelError
from mlxcel.core.request import TextPrompt
from mlxcel.core.settings import FixedDefaults
from tests.protocols.llama.reading import completion_read
from tests.protocols.samples import RULES, SETTINGS

INT32_MAX = 2**31 - 1


def test_a_prompt_alone_is_enough() -> None:
    read = completion_read()
    request = read.request
    assert (request.prompt, request.max_tokens) == (TextPrompt(text="2+2="), 512)
    assert (request.id, request.received_s, request.settings) == ("cmpl-0", 5.0, SETTINGS)
    assert (read.stream, read.ping_s, read.is_counted, read.requests) == (
        False,
        None,
        True,
        (request,),
    )
    assert (request.tells_ids, request.tells_progress, request.top_logprobs) == (False, False, None)
    assert (request.cache.is_on, request.lora, request.output, request.keep) == (
        True,
        None,
        None,
        0,
    )


def test_null_is_as_good_as_absent_everywhere() -> None:
    names = (
        "n_predict max_tokens max_completion_tokens stream stream_options sse_ping_interval "
        "timings_per_token return_progress return_tokens response_fields n_cmpl n n_indent "
        "t_max_predict_ms n_keep n_discard cache_prompt temperature top_k top_p min_p typical_p "
        "top_n_sigma xtc_probability xtc_threshold repeat_penalty repeat_last_n presence_penalty "
        "frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
        "dry_sequence_breakers mirostat mirostat_tau mirostat_eta dynatemp_range "
        "dynatemp_exponent adaptive_target adaptive_decay min_keep samplers ignore_eos seed stop "
        "logit_bias n_probs logprobs post_sampling_probs grammar json_schema grammar_lazy "
        "grammar_triggers preserved_tokens lora thinking_budget_tokens reasoning_budget_tokens "
        "thinking_token_budget thinking_budget reasoning_control response_format"
    )
    assert completion_read(**dict.fromkeys(names.split())) == completion_read()


@pytest.mark.parametrize(
    "sent",
    [
        {"verbose": 1},
        {"backend_sampling": "x"},
        {"echo": 7},
        {"speculative.n_max": [], "speculative.p_min": {}, "speculative.type": 1},
        {"id_slot": "x", "n_cache_reuse": 3, "whatever": {}},
        {"model": "another", "prompt_cache_key": "k", "min_count": 4},
        {"reasoning_control": True},
    ],
    ids=lambda sent: next(iter(sent)),
)
def test_fields_without_an_effect_have_none(sent: dict[str, Any]) -> None:
    assert completion_read(**sent) == completion_read()


@pytest.mark.parametrize(
    ("prompt", "rule"),
    [
        pytest.param(None, "prompt: is required", id="missing"),
        pytest.param([1, 2], "prompt: wants one string on this route, got array", id="tokens"),
        pytest.param(["a", "b"], "wants one string on this route, got array", id="several"),
        pytest.param({"prompt_string": "a"}, "got object", id="object"),
        pytest.param(7, "got integer", id="number"),
    ],
)
def test_a_prompt_is_one_string(prompt: Any, rule: str) -> None:
    with pytest.raises(BadField, match=rule) as caught:
        completion_read(prompt=prompt)
    assert caught.value.param == "prompt"


def test_an_empty_prompt_is_one() -> None:
    assert completion_read(prompt="").request.prompt == TextPrompt(text="")


@pytest.mark.parametrize(
    ("sent", "most", "shown"),
    [
        pytest.param({"n_predict": 7}, 7, 7, id="own-name"),
        pytest.param({"max_tokens": 7}, 7, 7, id="older-name"),
        pytest.param({"max_completion_tokens": 7}, 7, 7, id="newer-name"),
        pytest.param({"n_predict": -1}, INT32_MAX, -1, id="unbounded"),
        pytest.param({"n_predict": 0}, 1, 0, id="none-is-one"),
        pytest.param({"n_predict": INT32_MAX}, INT32_MAX, -1, id="most"),
    ],
)
def test_how_long_an_answer_may_be(sent: dict[str, int], most: int, shown: int) -> None:
    read = completion_read(**sent)
    assert (read.request.max_tokens, read.shape.n_predict) == (most, shown)


def test_a_setting_without_a_bound_is_one() -> None:
    endless = replace(SETTINGS, sampling=replace(SETTINGS.sampling, max_tokens=INT32_MAX))
    assert completion_read(settings=endless).shape.n_predict == -1


BOUNDS: list[tuple[str, int, int]] = [
    ("n_predict", -1, INT32_MAX),
    ("n_indent", 0, INT32_MAX),
    ("t_max_predict_ms", -1, 2**63 - 1),
    ("n_keep", -1, INT32_MAX),
    ("n_discard", 0, INT32_MAX),
    ("min_keep", 0, INT32_MAX),
]


@pytest.mark.parametrize(("name", "low", "high"), BOUNDS, ids=[row[0] for row in BOUNDS])
def test_an_integer_out_of_range_is_told_both_bounds(name: str, low: int, high: int) -> None:
    for value in (low, high):
        completion_read(**{name: value})
    for value in (low - 1, high + 1):
        rule = f"^{name}: wants a value from {low} to {high}, got {value}"
        with pytest.raises(BadField, match=rule):
            completion_read(**{name: value})


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("stream", {"stream": "yes"}),
    ("timings_per_token", {"timings_per_token": 1}),
    ("return_progress", {"return_progress": "x"}),
    ("return_tokens", {"return_tokens": 1}),
    ("stream_options.include_usage", {"stream_options": {"include_usage": 1}}),
    ("sse_ping_interval", {"sse_ping_interval": 0}),
    ("sse_ping_interval", {"sse_ping_interval": -2}),
    ("sse_ping_interval", {"sse_ping_interval": 1.5}),
    ("n", {"n": 2}),
    ("n_cmpl", {"n_cmpl": 0}),
    ("max_tokens", {"n_predict": 1, "max_tokens": 1}),
    ("cache_prompt", {"cache_prompt": "no"}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": []}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": [7]}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": [""]}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": ["x" * 41]}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": "\n"}),
    ("mirostat", {"mirostat": 3}),
    ("adaptive_decay", {"adaptive_decay": 1.0}),
    ("adaptive_decay", {"adaptive_decay": -0.1}),
    ("lora", {"lora": {"id": 0, "scale": 1}}),
    ("lora.0", {"lora": [1]}),
    ("lora.0.id", {"lora": [{"scale": 1}]}),
    ("lora.1.scale", {"lora": [{"id": 1, "scale": 1}, {"id": 0, "scale": "x"}]}),
    ("lora.0.scale", {"lora": [{"id": 1}]}),
    ("response_format", {"response_format": {"type": "json_object"}}),
    ("response_format", {"response_format": "text"}),
    ("stop", {"stop": [1]}),
    ("n_probs", {"n_probs": True}),
    ("logprobs", {"logprobs": True}),
    ("preserved_tokens", {"preserved_tokens": [1]}),
    ("json_schema", {"json_schema": "{}"}),
]


@pytest.mark.parametrize(("param", "sent"), WRONG)
def test_a_field_that_cannot_be_used_is_named(param: str, sent: dict[str, Any]) -> None:
    with pytest.raises(BadField) as caught:
        completion_read(**sent)
    assert caught.value.param == param


def test_a_form_of_the_chat_route_is_sent_there() -> None:
    with pytest.raises(BadField, match="/v1/chat/completions"):
        completion_read(response_format={"type": "json_schema"})
    assert completion_read(response_format={"type": "text"}) == completion_read()


IN_ORDER: list[tuple[str, dict[str, Any]]] = [
    ("top_k", {"top_k": "x"}),
    ("prompt", {"prompt": ["x"]}),
    ("response_format", {"response_format": {"type": "json_object"}}),
    ("n_predict", {"n_predict": -2}),
    ("stream_options.include_usage", {"stream_options": {"include_usage": 1}}),
    ("n_keep", {"n_keep": -2}),
    ("n_discard", {"n_discard": -1}),
    ("thinking_budget_tokens", {"thinking_budget_tokens": -2}),
    ("n", {"n": 2}),
    ("lora.0", {"lora": [0]}),
    ("sse_ping_interval", {"sse_ping_interval": 0}),
]


@pytest.mark.parametrize("place", range(len(IN_ORDER) - 1), ids=[row[0] for row in IN_ORDER[:-1]])
def test_fields_are_checked_in_the_order_of_the_contract(place: int) -> None:
    sent: dict[str, Any] = {}
    for _, fields in IN_ORDER[place:]:
        sent |= fields
    with pytest.raises(MlxcelError) as caught:
        completion_read(**sent)
    assert caught.value.param == IN_ORDER[place][0]


@pytest.mark.parametrize("name", ["mirostat", "samplers", "logit_bias", "grammar_triggers"])
def test_what_is_not_supported_comes_before_adapters(name: str) -> None:
    with pytest.raises(BadField) as caught:
        completion_read(**{name: [7] if name != "mirostat" else 9, "lora": [0]})
    assert (caught.value.param or "").startswith(name)


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [(-1, 0.0), (1, 1.0), (30, 30.0), (None, None)],
    ids=["off", "one", "thirty", "server"],
)
def test_how_often_a_silent_stream_is_kept_alive(sent: int | None, seconds: float | None) -> None:
    assert completion_read(sse_ping_interval=sent).ping_s == seconds


@pytest.mark.parametrize("options", ["x", 7, [], {}, {"include_usage": True}], ids=str)
def test_stream_options_have_no_effect(options: Any) -> None:
    assert completion_read(stream_options=options) == completion_read()


def test_what_a_stream_is_told() -> None:
    read = completion_read(stream=True, return_progress=True)
    request = read.request
    assert (request.tells_ids, request.tells_progress, read.is_counted) == (True, True, False)
    assert not completion_read(return_progress=True).request.tells_progress
    assert not completion_read(stream=True).request.tells_progress
    assert completion_read(return_tokens=True).request.tells_ids


@pytest.mark.parametrize(
    ("sent", "most"),
    [
        pytest.param({"n_probs": 3}, 3, id="own-name"),
        pytest.param({"logprobs": 3}, 3, id="openai-name"),
        pytest.param({"n_probs": 2, "logprobs": 3}, 2, id="own-name-wins"),
        pytest.param({"n_probs": 0, "logprobs": 3}, None, id="own-zero-wins"),
        pytest.param({"n_probs": -1}, None, id="negative"),
        pytest.param({"n_probs": 10**9}, 100, id="bounded"),
    ],
)
def test_how_many_likely_tokens_are_told(sent: dict[str, int], most: int | None) -> None:
    assert completion_read(**sent).request.top_logprobs == most


def test_bounds_of_lines_and_time() -> None:
    request = completion_read(n_indent=4, t_max_predict_ms=250, n_keep=-1, n_discard=9).request
    assert (request.indent, request.time_limit_ms) == (4, 250)
    assert (request.keep, request.discard) == (-1, 9)
    assert completion_read(t_max_predict_ms=-1).request.time_limit_ms == 0


def test_a_full_window_keeps_what_the_server_says() -> None:
    rules = replace(RULES, fixed=FixedDefaults(keep=12))
    assert completion_read(rules=rules).request.keep == 12
    assert completion_read(rules=rules, n_keep=0).request.keep == 0


@pytest.mark.parametrize(
    ("sent", "scales"),
    [
        pytest.param([], (), id="none-of-them"),
        pytest.param([{"id": 1, "scale": 0.5}], ((1, 0.5),), id="one"),
        pytest.param([{"id": 1, "scale": 1}, {"id": 1, "scale": 2}], ((1, 2.0),), id="later-wins"),
        pytest.param([{"id": -7, "scale": 1}], ((-7, 1.0),), id="unknown"),
    ],
)
def test_scales_of_adapters(sent: Any, scales: Any) -> None:
    assert completion_read(lora=sent).request.lora == scales


def test_a_budget_of_thinking_is_compared_with_the_answer() -> None:
    assert completion_read(thinking_budget=7, n_predict=7).request.thinking_budget == 7
    assert completion_read(thinking_budget=700, n_predict=-1).request.thinking_budget == 700
    with pytest.raises(BadRequest, match=r"thinking_budget_tokens \(8\) must be <= max_tokens"):
        completion_read(thinking_budget_tokens=8, n_predict=7)


def test_a_prompt_may_be_read_cold() -> None:
    assert not completion_read(cache_prompt=False).request.cache.is_on


@pytest.mark.parametrize(
    ("sent", "paths"),
    [
        pytest.param(["content", "a/b"], ("content", "a/b"), id="paths"),
        pytest.param("content", (), id="string"),
        pytest.param(["content", 1], (), id="not-only-strings"),
        pytest.param({}, (), id="object"),
    ],
)
def test_response_fields(sent: Any, paths: tuple[str, ...]) -> None:
    assert completion_read(response_fields=sent).shape.paths == paths


INF = math.inf
BIASES: list[tuple[str, Any, Any, Any]] = [
    ("pairs", [[5, 1.5], [3, -1]], ((3, -1.0), (5, 1.5)), ()),
    ("object", {"5": 1.5, "ab": 2}, ((5, 1.5),), (("ab", 2.0),)),
    ("text", [["ab", 2]], (), (("ab", 2.0),)),
    ("digits-in-a-pair-are-text", [["5", 2]], (), (("5", 2.0),)),
    ("ban", [[5, False], ["ab", False]], ((5, -INF),), (("ab", -INF),)),
    ("added", [[5, 1], [5, 2], ["a", 1], ["a", 2]], ((5, 3.0),), (("a", 3.0),)),
    ("banned-stays-banned", [[5, False], [5, 100]], ((5, -INF),), ()),
    ("bounded", [[5, 1e9], [6, -1e9]], ((5, 1e4), (6, -1e4)), ()),
    ("empty", [], (), ()),
]


@pytest.mark.parametrize(
    ("sent", "ids", "texts"), [row[1:] for row in BIASES], ids=[r[0] for r in BIASES]
)
def test_bias(sent: Any, ids: Any, texts: Any) -> None:
    request = completion_read(logit_bias=sent).request
    assert (request.sampling.bias, request.bias_texts) == (ids, texts)


def test_a_bias_is_added_to_that_of_the_server() -> None:
    rules = replace(RULES, fixed=FixedDefaults(bias=((3, 1.0), (9, -INF))))
    found = completion_read(rules=rules, logit_bias=[[3, 2], [9, 5], [4, 1]]).request
    assert found.sampling.bias == ((3, 3.0), (4, 1.0), (9, -INF))


@pytest.mark.parametrize(
    ("sent", "rule"),
    [
        pytest.param("5", r"wants an array of \[token, bias\]", id="string"),
        pytest.param([5], r"wants pairs \[token, bias\], got 5", id="no-pair"),
        pytest.param([[5, 1, 2]], "wants pairs", id="three"),
        pytest.param([[-1, 1]], "wants a token id from 0", id="negative"),
        pytest.param([[True, 1]], "wants a token id from 0", id="boolean"),
        pytest.param([[2**31, 1]], "wants a token id from 0", id="huge"),
        pytest.param({"4294967296": 1}, "wants a token id from 0", id="huge-key"),
        pytest.param([["", 1]], "1 to 1024 characters, got one of 0", id="empty-text"),
        pytest.param([["x" * 1025, 1]], "got one of 1025", id="long-text"),
        pytest.param([[5, True]], "wants a number, or false to ban", id="true"),
        pytest.param([[5, "1"]], "wants a number, or false to ban", id="string-bias"),
        pytest.param([[1, 1]] * 1025, "at most 1024 tokens, got 1025", id="many"),
    ],
)
def test_a_bias_that_cannot_be_used_is_refused(sent: Any, rule: str) -> None:
    with pytest.raises(BadField, match=rule) as caught:
        completion_read(logit_bias=sent)
    assert caught.value.param == "logit_bias"
