"""PATCH /v1/settings on a running server: each name changes what the next request gets."""

from collections.abc import Iterator
from typing import Any

import pytest

from mlxcel.text.bytes import BYTE_TEMPLATE
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.program import Program, chat_body, serve_checkpoint, text_of
from tests.whole.streaming import Stream

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PROMPT = "say something"
TEMPLATE = """\
{%- for message in messages -%}
<|user|>{{ message.content }}{{ tail | default("") }}<|end|>
{%- endfor -%}
<|assistant|>
"""
PRIMING = """\
{%- if add_generation_prompt and enable_thinking %}{{ "<think>\\n" }}{% endif -%}
"""
THINKING = {"enable_thinking": True}
WILD = (
    "live.sampling.temperature=2.0",
    "live.sampling.top_k=0",
    "live.sampling.top_p=1.0",
    "live.sampling.min_p=0.0",
    "live.sampling.seed=11",
    "live.sampling.max_tokens=24",
    "live.chat_template.kwargs={enable_thinking: false}",
)
MANY = 1000
"""Tokens that take longer than a PATCH."""
A_OR_B = {"65": 100.0, "66": 60.0}
"""A `logit_bias` under which a greedy answer is all A, unless penalties make A less likely."""
LETTERS = {str(byte): 100.0 for byte in b"abcdefghijklmnopqrstuvwxyz"}
"""A `logit_bias`: each token is a letter."""


@pytest.fixture(scope="module")
def wild_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A tiny model, sampled without restraint unless a setting says otherwise. It would think if
    its template were told to."""
    folder = tmp_path_factory.mktemp("wild") / "wild"
    build_tiny_checkpoint(
        folder, window=2048, markers=("<think>", "</think>"), template=BYTE_TEMPLATE + PRIMING
    )
    with Program(*serve_checkpoint(folder), *WILD) as program:
        yield program


@pytest.fixture
def wild(wild_server: Program) -> Program:
    replaced(wild_server)
    return wild_server


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Echo, so slow that a stream is still open when the settings change."""
    template = tmp_path_factory.mktemp("template") / "tail.jinja"
    template.write_text(TEMPLATE)
    words = ("engine.delay_ms=40", f"generation.chat_template.file={template}")
    with Program("model=echo", *words) as program:
        yield program


@pytest.fixture
def slow(slow_server: Program) -> Program:
    replaced(slow_server)
    return slow_server


def patched(program: Program, **values: Any) -> dict[str, Any]:
    """Applies all of it, or fails the test."""
    status, answer = program.call("PATCH", "/v1/settings", values)
    assert status == 200
    assert answer["rejected"] == []
    assert answer["applied"] == values
    assert isinstance(answer, dict)
    return answer


def replaced(program: Program) -> None:
    """Every setting as it was at the start."""
    status, _ = program.call("PATCH", "/v1/settings", {"op": "replace", "values": {}})
    assert status == 200


def plain(program: Program, **fields: Any) -> dict[str, Any]:
    """A request that leaves to the settings what it does not name."""
    body = chat_body(PROMPT)
    del body["temperature"]
    status, answer = program.post("/v1/chat/completions", body | fields)
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


def greedy(program: Program, **fields: Any) -> str:
    return text_of(plain(program, temperature=0, **fields))


def test_default_max_tokens(wild: Program) -> None:
    assert plain(wild)["usage"]["completion_tokens"] == 24
    patched(wild, default_max_tokens=5)
    answer = plain(wild)
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"
    assert plain(wild, max_tokens=7)["usage"]["completion_tokens"] == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("default_temperature", 0.0, id="temperature-0"),
        pytest.param("default_top_k", 1, id="top_k-1"),
        pytest.param("default_top_p", 0.001, id="top_p-near-0"),
        pytest.param("default_min_p", 1.0, id="min_p-1"),
    ],
)
def test_sampling_default_that_leaves_one_token_makes_it_greedy(
    wild: Program, name: str, value: float
) -> None:
    expected = greedy(wild)
    assert text_of(plain(wild)) != expected
    patched(wild, **{name: value})
    assert text_of(plain(wild)) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("default_repetition_penalty", 10.0, id="repetition"),
        pytest.param("default_presence_penalty", 50.0, id="presence"),
        pytest.param("default_frequency_penalty", -5.0, id="frequency"),
    ],
)
def test_default_penalty_changes_the_next_greedy_answer(
    wild: Program, name: str, value: float
) -> None:
    before = greedy(wild)
    patched(wild, **{name: value})
    after = greedy(wild)
    assert after != before
    field = name.removeprefix("default_")
    patched(wild, **{name: 1.0 if "repetition" in name else 0.0})
    assert text_of(plain(wild, temperature=0, **{field: value})) == after
    patched(wild, **{name: value}, default_repetition_context_size=0)
    assert greedy(wild) == before


@pytest.mark.parametrize(
    ("with_it", "without"),
    [
        pytest.param({}, {"default_dry_multiplier": 0.0}, id="multiplier"),
        pytest.param({}, {"default_dry_allowed_length": 500}, id="allowed_length"),
        pytest.param({}, {"default_dry_penalty_last_n": 0}, id="penalty_last_n"),
        pytest.param({}, {"default_dry_sequence_breakers": ["A"]}, id="sequence_breakers"),
        pytest.param(
            {"default_dry_multiplier": 1.0, "default_dry_base": 4.0},
            {"default_dry_base": 1.0},
            id="base",
        ),
    ],
)
def test_default_dry(wild: Program, with_it: dict[str, Any], without: dict[str, Any]) -> None:
    """Weighed so that the one name decides whether the sequence of A breaks off."""
    assert greedy(wild, logit_bias=A_OR_B) == "A" * 24
    strong = {"default_dry_multiplier": 500.0, "default_dry_sequence_breakers": []}
    patched(wild, **{**strong, **with_it})
    assert "B" in greedy(wild, logit_bias=A_OR_B)
    patched(wild, **without)
    assert greedy(wild, logit_bias=A_OR_B) == "A" * 24


def test_lang_bias_config(wild: Program) -> None:
    letters = set("abcdefghijklmnopqrstuvwxyz")
    assert set(greedy(wild, logit_bias=LETTERS)) <= letters
    ban = {"bias_set": {"ordered": [["en", "-inf"]]}}
    assert wild.call("PATCH", "/v1/settings", {"lang_bias_config": ban})[0] == 200
    said = greedy(wild, logit_bias=LETTERS)
    assert said
    assert not set(said.lower()) & letters
    patched(wild, lang_bias_config=None)
    assert set(greedy(wild, logit_bias=LETTERS)) <= letters


def test_loop_detection(wild: Program) -> None:
    fields = {"temperature": 0, "logit_bias": {"65": 100.0}}
    assert text_of(plain(wild, **fields)) == "A" * 24
    guard = {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 3}
    patched(wild, loop_detection=guard)
    answer = plain(wild, **fields)
    assert text_of(answer) == "A" * 6
    assert answer["choices"][0]["finish_reason"] == "stop"
    patched(wild, loop_detection={**guard, "min_count": 0})
    assert text_of(plain(wild, **fields)) == "A" * 24


def thoughts(answer: dict[str, Any]) -> int:
    """How many tokens of thought: one a letter."""
    return len(answer["choices"][0]["message"]["reasoning_content"])


def test_reasoning_budget_and_a_stream_that_began_before_it(wild: Program) -> None:
    """The kwargs of the template reach the real one: without them it does not think."""
    fields = {"temperature": 0, "logit_bias": LETTERS}
    assert "reasoning_content" not in plain(wild, **fields)["choices"][0]["message"]
    patched(wild, chat_template_kwargs=THINKING, default_max_tokens=MANY)
    with Stream(wild.url, PROMPT, **fields) as stream:
        wild.await_health(batch__active_sequences=1)
        patched(wild, reasoning_budget=5, default_max_tokens=24)
        assert wild.health()["batch"]["active_sequences"] == 1
        assert thoughts(plain(wild, **fields)) == 5
        ended = stream.rest()
    assert (ended.text, ended.reason) == ("", "length")
    patched(wild, reasoning_budget=0)
    answer = plain(wild, **fields)["choices"][0]["message"]
    assert "reasoning_content" not in answer
    assert len(answer["content"]) == 23
    patched(wild, reasoning_budget=-1)
    assert thoughts(plain(wild, **fields)) == 24


def test_the_largest_values_serve(wild: Program) -> None:
    """What is taken must not break a request."""
    largest = {
        "default_seed": 2**64 - 1,
        "default_top_k": 2**31 - 1,
        "default_max_tokens": 2**64 - 1,
        "default_repetition_context_size": 2**64 - 1,
        "default_dry_penalty_last_n": 2**64 - 1,
        "default_dry_allowed_length": 2**64 - 1,
        "default_dry_multiplier": 1e300,
        "default_dry_base": 1e300,
        "default_repetition_penalty": 1e300,
        "default_frequency_penalty": -1e300,
        "default_presence_penalty": 1e300,
        "default_temperature": 1e300,
        "timeout_seconds": 2**64 - 1,
        "reasoning_budget": 2**31 - 1,
    }
    patched(wild, **largest)
    assert plain(wild, max_tokens=8)["usage"]["completion_tokens"] == 8
    with Stream(wild.url, PROMPT) as stream:
        assert stream.pieces(3)
    wild.await_health(batch__active_sequences=0)


def test_default_seed(wild: Program) -> None:
    before = text_of(plain(wild))
    assert before == text_of(plain(wild, seed=11))
    patched(wild, default_seed=12)
    after = text_of(plain(wild))
    assert after == text_of(plain(wild, seed=12))
    assert after != before
    patched(wild, default_seed=None)
    assert text_of(plain(wild)) != text_of(plain(wild))


def test_chat_template_kwargs(slow: Program) -> None:
    assert text_of(slow.chat("hi")) == "hi"
    patched(slow, chat_template_kwargs={"tail": "!?"})
    assert text_of(slow.chat("hi")) == "hi!?"
    own = slow.chat("hi", chat_template_kwargs={"tail": "."})
    assert text_of(own) == "hi."


def test_timeout_seconds_ends_a_row_that_has_gone_silent() -> None:
    with Program("model=echo", "engine.delay_ms=1500") as program:
        patched(program, timeout_seconds=1)
        status, refused = program.post("/v1/chat/completions", chat_body("silence"))
        assert status == 504
        assert refused["error"]["type"] == "server_timeout"
        assert "no token for 1 s" in refused["error"]["message"]
        program.await_health(batch__active_sequences=0)
        patched(program, timeout_seconds=30)
        assert text_of(program.chat("a")) == "a"


def test_open_stream_keeps_the_settings_it_began_with(slow: Program) -> None:
    message = "every word of this"
    with Stream(slow.url, message) as stream:
        said = stream.pieces(2)
        patched(slow, default_max_tokens=3, chat_template_kwargs={"tail": "!"})
        assert text_of(slow.chat(message)) == message[:3]
        ended = stream.rest()
    assert said + ended.text == message
    assert ended.reason == "stop"


def test_wrong_values_are_refused_one_by_one_and_change_nothing_else(wild: Program) -> None:
    body = {"default_top_p": 7, "default_max_tokens": 4, "n_parallel": 9, "no_such": 1}
    status, answer = wild.call("PATCH", "/v1/settings", body)
    assert status == 200
    assert answer["applied"] == {"default_max_tokens": 4}
    assert [entry["name"] for entry in answer["rejected"]] == [
        "default_top_p", "n_parallel", "no_such",
    ]  # fmt: skip
    assert plain(wild)["usage"]["completion_tokens"] == 4


def test_history_and_revert(wild: Program) -> None:
    start = wild.get("/v1/settings")[1]["fingerprint"]
    first = patched(wild, default_max_tokens=6)["fingerprint"]
    patched(wild, default_max_tokens=9)
    newest = wild.get("/v1/settings/history")[1]["history"][-2:]
    assert [entry["changes"]["default_max_tokens"] for entry in newest] == [
        {"old": 24, "new": 6},
        {"old": 6, "new": 9},
    ]
    assert wild.post("/v1/settings/revert", {})[1]["fingerprint"] == first
    assert plain(wild)["usage"]["completion_tokens"] == 6
    assert wild.post("/v1/settings/revert", {})[1]["fingerprint"] == start
    assert plain(wild)["usage"]["completion_tokens"] == 24


def test_lost_update_is_refused(wild: Program) -> None:
    old = wild.get("/v1/settings")[1]["fingerprint"]
    patched(wild, default_max_tokens=6)
    headers = {"If-Match": f'"{old}"'}
    status, _ = wild.call("PATCH", "/v1/settings", {"default_max_tokens": 8}, headers)
    assert status == 412
    assert plain(wild)["usage"]["completion_tokens"] == 6


def test_routes_are_not_there_when_switched_off() -> None:
    with Program("model=echo", "routes.settings=false") as program:
        assert program.get("/v1/settings")[0] == 404
        assert program.call("PATCH", "/v1/settings", {"default_seed": 1})[0] == 404
        assert program.get("/v1/settings/history")[0] == 404
        assert program.post("/v1/settings/revert", {})[0] == 404
        assert text_of(program.chat("hello")) == "hello"
