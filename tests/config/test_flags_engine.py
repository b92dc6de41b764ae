"""Flags and variables of scheduling, memory, sampling, reasoning, languages and adapters whose
value is not simply what was written."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.config import flag_forms
from mlxcel.config.compose import compose
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.validate import validate
from mlxcel.core.language import CODES
from tests.config.reading import parsed, problems, values

WIDTH = "scheduler.max_batch_size"
TOKENS = "scheduler.max_batch_prefill_tokens"
ORDER = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
NAMED = "generation.sampling.adaptive.named"
LOOP = "live.loop_detection"


def loop(most: int, least: int, count: int) -> dict[str, int]:
    return {"max_pattern_size": most, "min_pattern_size": least, "min_count": count}


@pytest.mark.parametrize(
    ("argv", "env", "expected"),
    [
        pytest.param(["--no-cont-batching"], {}, {WIDTH: 1}, id="no-batching-is-one-row"),
        pytest.param(["--cont-batching"], {}, {}, id="batching-is-the-default"),
        pytest.param(["--no-cont-batching", "-cb"], {}, {}, id="the-last-one-counts"),
        pytest.param(["-cb", "--no-cont-batching"], {}, {WIDTH: 1}, id="whichever-it-is"),
        pytest.param(["--max-batch-size", "8", "-cb"], {}, {WIDTH: 8}, id="batching-keeps-a-size"),
        pytest.param([], {"LLAMA_ARG_CONT_BATCHING": "off"}, {WIDTH: 1}, id="variable"),
        pytest.param([], {"LLAMA_ARG_CONT_BATCHING": "1"}, {}, id="variable-on"),
        pytest.param([], {"LLAMA_ARG_NO_CONT_BATCHING": "1"}, {WIDTH: 1}, id="negated-variable"),
        pytest.param(["-cb"], {"LLAMA_ARG_CONT_BATCHING": "off"}, {}, id="flag-beats-variable"),
    ],
)
def test_continuous_batching_off_is_a_batch_of_one(
    argv: list[str], env: dict[str, str], expected: dict[str, object]
) -> None:
    assert values(parsed(*argv, **env)) == expected


def test_the_variable_beats_the_flag_for_prefill_tokens_alone() -> None:
    invocation = parsed("--max-batch-prefill-tokens", "5", MLXCEL_MAX_BATCH_PREFILL_TOKENS="6")
    assert values(invocation) == {TOKENS: 6}
    [warning] = invocation.warnings
    assert warning.startswith("--max-batch-prefill-tokens has no effect")
    assert values(parsed("--max-batch-prefill-tokens", "5")) == {TOKENS: 5}
    assert values(parsed("--max-batch-prefill-tokens", "5", "--max-batch-prefill-tokens", "7")) == {
        TOKENS: 7
    }
    assert values(parsed(MLXCEL_MAX_BATCH_PREFILL_TOKENS="0")) == {TOKENS: 0}


@pytest.mark.parametrize("word", ["1", "true", "YES", " on ", "On", "enabled"])
def test_mixed_step_is_asked_for(word: str) -> None:
    assert values(parsed(MLXCEL_MIXED_STEP=word)) == {"scheduler.mixed_step": True}


@pytest.mark.parametrize("word", ["0", "no", "off", "false"])
def test_mixed_step_is_refused(word: str) -> None:
    assert values(parsed(MLXCEL_MIXED_STEP=word)) == {"scheduler.mixed_step": False}


def test_mixed_step_with_another_word_is_an_error() -> None:
    assert [key for key, *_ in problems(MLXCEL_MIXED_STEP="maybe")] == ["MLXCEL_MIXED_STEP"]


@pytest.mark.parametrize("text", ["", "0", "false", "1", "whatever"])
def test_force_sync_counts_by_being_there(text: str) -> None:
    assert values(parsed(MLXCEL_FORCE_SYNC=text)) == {"scheduler.lookahead": False}
    assert values(parsed()) == {}


@pytest.mark.parametrize("text", ["many", "-3", "1.5", "0x10"])
def test_a_grant_interval_that_cannot_be_read_is_16(text: str) -> None:
    invocation = parsed(MLXCEL_PREFILL_GRANT_INTERVAL=text)
    assert values(invocation) == {"scheduler.prefill_grant_interval": 16}
    assert "16 is used" in invocation.warnings[0]
    assert problems("--prefill-grant-interval", text)
    assert values(parsed(MLXCEL_PREFILL_GRANT_INTERVAL="0")) == {
        "scheduler.prefill_grant_interval": 0
    }


def test_a_storage_that_cannot_be_read_is_auto_in_a_variable_alone() -> None:
    invocation = parsed(MLXCEL_SERVER_DECODE_STORAGE="blocks")
    assert values(invocation) == {"cache.decode_storage": "auto"}
    assert "auto is used" in invocation.warnings[0]
    [(key, rule, _)] = problems("--decode-storage-backend", "blocks")
    assert (key, rule) == ("--decode-storage-backend", "is none of auto, dense, paged")


def test_another_preemption_policy_is_an_error() -> None:
    [(_, rule, _)] = problems("--preemption-policy", "youngest")
    assert rule == "is none of longest-first, lowest-priority"


@pytest.mark.parametrize(
    ("text", "value"),
    [("auto", "auto"), ("AUTO", "auto"), ("2G", 2 << 30), ("4096", 4096), ("0", 0), ("none", None)],
)
def test_kv_budget(text: str, value: object) -> None:
    assert values(parsed("--kv-cache-budget", text)) == {"cache.kv_budget": value}
    assert values(parsed(MLXCEL_KV_CACHE_BUDGET=text)) == {"cache.kv_budget": value}


@pytest.mark.parametrize(("text", "size"), [("24G", 24 << 30), ("1.5GB", 3 << 29), ("1", 1)])
def test_a_request_memory_budget(text: str, size: int) -> None:
    asked = parsed(MLXCEL_REQUEST_MEMORY_BUDGET=text).asked
    tree: Any = compose(asked).tree
    assert tree["limits"]["request_memory_budget"] == size


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0", id="zero"),
        pytest.param("0G", id="zero-with-a-unit"),
        pytest.param("0.0 KB", id="zero-as-a-fraction"),
        pytest.param("", id="empty"),
        pytest.param("  ", id="blank"),
        pytest.param("none", id="none"),
        pytest.param("None", id="none-in-capitals"),
        pytest.param("-1G", id="negative"),
        pytest.param("inf", id="infinite"),
        pytest.param("nan", id="not-a-number"),
        pytest.param("1e3", id="exponent"),
        pytest.param("9" * 400 + "G", id="too-large-for-a-number"),
        pytest.param("99999999999999999999G", id="too-large-for-bytes"),
        pytest.param("18446744073709551616", id="two-to-the-64"),
        pytest.param("0.0000000001K", id="less-than-a-byte"),
        pytest.param("12Q", id="unknown-unit"),
    ],
)
def test_a_request_memory_budget_that_stops_the_start(text: str) -> None:
    name = "MLXCEL_REQUEST_MEMORY_BUDGET"
    try:
        found = validate(compose(parsed(**{name: text}).asked))
    except ConfigErrors as refused:
        found = refused.problems
    [problem] = found
    assert problem.source == f"environment: {name}"


@pytest.mark.parametrize("text", ["1", "63", "2147483648", "-1"])
def test_max_kv_size_out_of_range(text: str) -> None:
    [problem] = validate(compose(parsed("--max-kv-size", text).asked))
    assert problem.key == "cache.max_kv_size"


def test_max_kv_size_says_its_range() -> None:
    [problem] = validate(compose(parsed("--max-kv-size", "63").asked))
    assert problem.rule == "must not be 1 to 63"


@pytest.mark.parametrize("text", ["0", "64", "2147483647"])
def test_max_kv_size_in_range(text: str) -> None:
    assert validate(compose(parsed("--max-kv-size", text).asked)) == []


@pytest.mark.parametrize(("text", "is_good"), [("0", True), ("0.5", True), ("0.51", False)])
def test_watermark_range(text: str, is_good: bool) -> None:
    assert (validate(compose(parsed("--kv-admission-watermark", text).asked)) == []) is is_good


@pytest.mark.parametrize("flag", ["--samplers", "--sampler-seq"])
@pytest.mark.parametrize(
    ("text", "is_named"),
    [(ORDER, False), (f"{ORDER};adaptive_p", True), ("edskypmxt", False), ("edskypmxta", True)],
)
def test_the_default_order_is_accepted_and_adaptive_p_named(
    flag: str, text: str, is_named: bool
) -> None:
    assert values(parsed(flag, text)) == {NAMED: is_named}


@pytest.mark.parametrize("text", ["top_k;temperature", "kt", "", "adaptive_p", f"{ORDER};x"])
def test_another_order_of_samplers_is_an_error(text: str) -> None:
    [(key, rule, _)] = problems("--samplers", text)
    assert key == "--samplers"
    assert rule.startswith(f"is none of {ORDER}")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["5+1"], [[5, 1.0]]),
        (["5-0.5"], [[5, -0.5]]),
        (["5-inf"], [[5, "-inf"]]),
        (["5+1e2", "6-1"], [[5, 100.0], [6, -1.0]]),
        (["5+1,6-inf"], [[5, 1.0], [6, "-inf"]]),
    ],
)
def test_logit_bias(argv: list[str], expected: list[list[object]]) -> None:
    invocation = parsed(*(word for text in argv for word in ("-l", text)))
    assert values(invocation) == {"generation.sampling.logit_bias": expected}
    assert validate(compose(invocation.asked)) == []


@pytest.mark.parametrize("text", ["5", "5+", "+1", "5+inf", "5+nan", "a+1", "5*1", "5+1_0"])
def test_no_logit_bias(text: str) -> None:
    [(key, _, _)] = problems("--logit-bias", text)
    assert key == "--logit-bias"


@given(st.integers(0, 2**31 - 1), st.floats(allow_nan=False, allow_infinity=False))
def test_a_logit_bias_is_read_as_it_is_written(token: int, bias: float) -> None:
    assert flag_forms.token_bias(f"{token}{bias:+}") == [token, bias]


def test_reverse_prompts_are_stops_in_their_order() -> None:
    argv = ["-r", "User:", "--reverse-prompt", r"\n\n", "-r", "a,b"]
    assert values(parsed(*argv)) == {"generation.sampling.stop": ["User:", "\n\n", "a,b"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", loop(0, 0, 0)),
        ("on", loop(20, 1, 4)),
        ("ON", loop(20, 1, 4)),
        ("2,8,3", loop(8, 2, 3)),
    ],
)
def test_loop_detection(text: str, value: dict[str, int]) -> None:
    invocation = parsed(MLXCEL_LOOP_DETECTION=text)
    assert values(invocation) == {LOOP: value}
    tree: Any = compose(invocation.asked).tree
    assert tree["live"]["loop_detection"] == value
    assert validate(compose(invocation.asked)) == []


@pytest.mark.parametrize("text", ["yes", "1,20", "1,20,-4", "1,20,4,5", "a,b,c", "9,8,3"])
def test_no_loop_detection(text: str) -> None:
    [(key, rule, _)] = problems(MLXCEL_LOOP_DETECTION=text)
    assert key == "MLXCEL_LOOP_DETECTION"
    assert "MIN,MAX,COUNT" in rule


@given(*[st.integers(0, 10**9 - 1)] * 3)
def test_a_loop_is_read_as_it_is_written(least: int, most: int, count: int) -> None:
    least, most = sorted((least, most))
    assert flag_forms.loop(f"{least},{most},{count}") == loop(most, least, count)


def test_the_newer_name_of_the_thinking_budget_wins() -> None:
    env = {"LLAMA_ARG_THINK_BUDGET": "5", "LLAMA_ARG_REASONING_BUDGET": "6"}
    assert values(parsed(**env)) == {"live.reasoning.budget": 5}
    assert values(parsed("--reasoning-budget", "-1", **env)) == {"live.reasoning.budget": -1}


@pytest.mark.parametrize("word", ["on", "off", "auto"])
def test_reasoning_words_are_words(word: str) -> None:
    invocation = parsed("--reasoning", word)
    assert values(invocation) == {"generation.reasoning.enabled": word}
    assert validate(compose(invocation.asked)) == []


def test_no_alias_for_reasoning() -> None:
    for invocation in (
        parsed("--reasoning-alias-field", "none"),
        parsed(MLXCEL_REASONING_ALIAS_FIELD="none"),
    ):
        assert values(invocation) == {"generation.reasoning.alias_field": None}
        assert validate(compose(invocation.asked)) == []


def test_language_flags_make_the_live_setting() -> None:
    argv = ["--lang-bias", "ja=-5,zh=-inf", "--lang-bias-policy", "strict"]
    tree: Any = compose(parsed(*argv, "--lang-bias-include-numeric").asked).tree
    assert tree["live"]["lang_bias"] == {
        "bias_set": {"ordered": [["ja", -5.0], ["zh", "-inf"]]},
        "policy": "Strict",
        "exceptions": {"include_numeric": True},
    }


@pytest.mark.parametrize("text", ["ja", "=1", "ja=", "xx=1", "ja=1,ja=2", "ja=nan", "ja=x", ","])
def test_a_language_bias_that_stops_the_start(text: str) -> None:
    for found in (problems("--lang-bias", text), problems(LLAMA_ARG_LANG_BIAS=text)):
        [(key, _, _)] = found
        assert key in ("--lang-bias", "LLAMA_ARG_LANG_BIAS")


@given(st.lists(st.sampled_from(CODES), min_size=1, unique=True))
def test_languages_keep_their_order(codes: list[str]) -> None:
    text = ",".join(f"{code}=-{place}" for place, code in enumerate(codes))
    assert flag_forms.languages(text) == [[code, -float(i)] for i, code in enumerate(codes)]


def test_adapters_are_numbered_in_the_order_of_the_flags() -> None:
    argv = ["--lora", "a,b", "--lora-scaled", "c:0.5,d:-1", "--adapter", "e"]
    adapters: Any = values(parsed(*argv))["model.lora.adapters"]
    assert [(a["path"], a["scale"]) for a in adapters] == [
        ("a", 1.0),
        ("b", 1.0),
        ("c", 0.5),
        ("d", -1.0),
        ("e", 1.0),
    ]
    assert validate(compose(parsed(*argv).asked)) == []


def test_an_adapter_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert flag_forms.scaled_adapter("~/a:b:2") == {"path": f"{tmp_path}/a:b", "scale": 2.0}


@pytest.mark.parametrize("text", ["a", ":1", "a:", "a:x", "a:nan", "a:inf", ","])
def test_no_scaled_adapter(text: str) -> None:
    [(key, _, _)] = problems("--lora-scaled", text)
    assert key == "--lora-scaled"


def test_a_layer_range_takes_two_values_and_changes_nothing() -> None:
    argv = ["--control-vector-layer-range", "1", "20", "--port", "5"]
    assert values(parsed(*argv)) == {"server.port": 5}


@pytest.mark.parametrize(
    ("flag", "key"),
    [("--grammar-file", "generation.grammar"), ("--json-schema-file", "generation.json_schema")],
    ids=["grammar", "schema"],
)
def test_a_default_form_may_stand_in_a_file(flag: str, key: str, tmp_path: Path) -> None:
    file = tmp_path / "form"
    file.write_text('root ::= "${é}"\n', encoding="utf-8")
    invocation = parsed(flag, str(file))
    assert values(invocation) == {key: 'root ::= "${é}"\n'}


@pytest.mark.parametrize("content", [None, b"\xff"], ids=["missing", "not-utf-8"])
def test_a_file_that_cannot_be_read_is_told(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "form"
    if content is not None:
        file.write_bytes(content)
    [(_, rule, _)] = problems("--grammar-file", str(file))
    assert "cannot be read as UTF-8 text" in rule


def test_a_socket_timeout_alone_is_told_apart_from_the_watchdog() -> None:
    for invocation in (parsed("--timeout", "60"), parsed(LLAMA_ARG_TIMEOUT="60")):
        [warning] = invocation.warnings
        assert "--decode-timeout" in warning
    assert parsed("--timeout", "60", "--decode-timeout", "60").warnings == ()
    assert parsed("--timeout", "60", MLXCEL_DECODE_TIMEOUT="60").warnings == ()
    assert parsed("--decode-timeout", "60").warnings == ()
