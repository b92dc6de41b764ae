"""argv and environment -> Invocation: the mechanism, and what flags have to do with each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mlxcel.config.flag_table import load_table
from mlxcel.config.flags import UsageError, parse
from tests.config.reading import one_row, parsed, problems, values


@pytest.mark.parametrize(
    ("argv", "command", "words"),
    [
        pytest.param([], "serve", (), id="nothing-is-serve"),
        pytest.param(["--port", "1"], "serve", (), id="flags-alone"),
        pytest.param(["serve", "--port", "1"], "serve", (), id="serve"),
        pytest.param(["config"], "config", (), id="config"),
        pytest.param(
            ["config", "explain", "server.port"], "config", ("explain", "server.port"), id="words"
        ),
        pytest.param(["--alias", "config"], "serve", (), id="a-value-is-no-command"),
    ],
)
def test_command_and_words(argv: Sequence[str], command: str, words: tuple[str, ...]) -> None:
    invocation = parsed(*argv)
    assert (invocation.command, invocation.words) == (command, words)


@pytest.mark.parametrize(
    "word",
    [
        "model=qwen3",
        "server.port=8080",
        "+x.y=1",
        "++x=1",
        "~server",
        "a.b=",
        "k={a: 1}",
        "x='a\nb'",
    ],
)
def test_hydra_words_are_handed_on_as_they_are(word: str) -> None:
    assert parsed("--port", "1", word).asked.overrides == (word,)


def test_hydra_words_keep_their_order_among_flags() -> None:
    asked = parsed("a=1", "--port", "1", "b=2", "--host", "x", "a=3").asked
    assert asked.overrides == ("a=1", "b=2", "a=3")


def test_after_two_dashes_nothing_is_a_flag() -> None:
    assert parsed("config", "--", "--port").words == ("--port",)


def test_the_source_names_the_spelling_used() -> None:
    sources = [s.source for s in parsed("-c", "4096", LLAMA_ARG_PORT="1").asked.values]
    assert sources == ["environment: LLAMA_ARG_PORT", "command line: -c"]


def test_last_of_a_repeated_flag_wins() -> None:
    assert values(parsed("--port", "1", "--port=2")) == {"server.port": 2}
    assert values(parsed("--warmup", "--no-warmup")) == {"server.warmup": False}


@pytest.mark.parametrize(
    ("env", "port"),
    [
        pytest.param({"A_CANON": "1", "B_OLD": "2", "MLXCEL_C": "3"}, 1, id="canonical"),
        pytest.param({"B_OLD": "2", "MLXCEL_C": "3"}, 2, id="older"),
        pytest.param({"MLXCEL_C": "3"}, 3, id="mlxcel"),
        pytest.param({"A_CANON": "", "B_OLD": "2"}, 2, id="empty-is-unset"),
    ],
)
def test_first_variable_that_is_set_wins(env: dict[str, str], port: int) -> None:
    table = one_row(flags=["--p"], key="k", type="int", env=["A_CANON", "B_OLD", "MLXCEL_C"])
    assert values(parsed(table=table, **env)) == {"k": port}
    assert values(parsed("--p", "9", table=table, **env)) == {"k": 9}


def test_a_variable_that_the_command_line_overrides_is_not_even_read() -> None:
    assert values(parsed("--port", "1", LLAMA_ARG_PORT="many")) == {"server.port": 1}


def test_api_keys_of_all_sources_add_up() -> None:
    invocation = parsed(
        "--api-key", "a", "--api-key", 'b,"c,d"', LLAMA_API_KEY="e", MLXCEL_API_KEY="f, g"
    )
    keys = [s.value for s in invocation.asked.values if s.key == "server.api_keys"]
    assert keys == [["e"], ["f", " g"], ["a", "b", "c,d"]]


def test_key_files_may_be_given_several_times(tmp_path: Path) -> None:
    files = [tmp_path / "a,b", tmp_path / "c"]
    for file in files:
        file.write_text("key")
    argv = [word for file in files for word in ("--api-key-file", str(file))]
    assert values(parsed(*argv)) == {"server.api_key_files": [str(file) for file in files]}


@pytest.mark.parametrize("word", ["on", "enabled", "true", "1", "TRUE"])
def test_boolean_variable_says_yes(word: str) -> None:
    assert values(parsed(LLAMA_ARG_OFFLINE=word)) == {"model.offline": True}


@pytest.mark.parametrize("word", ["off", "disabled", "false", "0"])
def test_boolean_variable_says_no(word: str) -> None:
    assert values(parsed(LLAMA_ARG_OFFLINE=word)) == {"model.offline": False}


def test_boolean_variable_with_another_word_is_refused() -> None:
    [(key, rule, _)] = problems(LLAMA_ARG_OFFLINE="yes")
    assert key == "LLAMA_ARG_OFFLINE"
    assert "enabled" in rule


def test_negated_variable_sets_false_and_beats_the_plain_one() -> None:
    env = {"LLAMA_ARG_NO_OFFLINE": "1", "LLAMA_ARG_OFFLINE": "1"}
    assert values(parsed(**env)) == {"model.offline": False}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({"MLXCEL_NO_PROGRESS": "1"}, {"observability.progress": False}, id="ours"),
        pytest.param({"NO_COLOR": "please"}, {"observability.progress": False}, id="any-word"),
        pytest.param({"CI": "true"}, {"observability.progress": False}, id="ci"),
        pytest.param({"CI": "woodpecker"}, {}, id="ci-with-another-value"),
        pytest.param({"MLXCEL_NO_PROGRESS": "0"}, {}, id="zero-asks-for-nothing"),
    ],
)
def test_progress_variables(env: dict[str, str], expected: dict[str, object]) -> None:
    assert values(parsed(**env)) == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(["--b"], {"k": True}, id="bare"),
        pytest.param(["--b=off"], {"k": False}, id="after-equals"),
        pytest.param(["--b", "x=1"], {"k": True}, id="never-swallows-the-next-word"),
    ],
)
def test_bool_takes_its_value_after_equals_only(
    argv: list[str], expected: dict[str, object]
) -> None:
    table = one_row(flags=["--b"], key="k", type="bool")
    assert values(parsed(*argv, table=table)) == expected


def test_no_flag_sets_false() -> None:
    table = one_row(flags=["--no-b"], key="k", type="no-flag")
    assert values(parsed("--no-b", table=table)) == {"k": False}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24G", 24 << 30),
        ("1.5GB", 3 << 29),
        ("512M", 512 << 20),
        ("2kb", 2048),
        ("0", 0),
        ("7", 7),
        ("none", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    table = one_row(flags=["--size"], key="k", type="size")
    assert values(parsed("--size", text, table=table)) == {"k": size}


@pytest.mark.parametrize("text", ["1.5", "G", "-1", "1T", "1 G B", ""])
def test_no_sizes(text: str) -> None:
    table = one_row(flags=["--size"], key="k", type="size")
    [(key, rule, _)] = problems("--size", text, table=table)
    assert (key, rule[:13]) == ("--size", "is not a size")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([","], [","], id="a-comma-is-a-text"),
        pytest.param(["a", " b "], ["a", " b "], id="several-add-up-untrimmed"),
        pytest.param(["none"], [], id="none-clears"),
        pytest.param(["a", "none"], [], id="none-clears-what-was-before"),
        pytest.param(["none", "a"], ["a"], id="more-after-none"),
        pytest.param([r"\n\t\r\\"], ["\n\t\r\\"], id="escapes"),
        pytest.param([r"\\n"], [r"\n"], id="an-escaped-backslash-escapes-nothing"),
        pytest.param([r"\d"], [r"\d"], id="no-escape"),
    ],
)
def test_texts(texts: list[str], expected: list[str]) -> None:
    table = one_row(flags=["--text"], key="k", type="texts")
    argv = [word for text in texts for word in ("--text", text)]
    assert values(parsed(*argv, table=table)) == {"k": expected}


def test_a_group_choice_is_a_choice_and_not_a_value() -> None:
    table = one_row(flags=["--kind"], key="@draft", type="choice", env=["KIND"])
    asked = parsed("--kind", "prompt-lookup", table=table).asked
    assert (asked.choices, asked.values) == ((("draft", "prompt_lookup"),), ())
    assert parsed(table=table, KIND="mtp").asked.choices == (("draft", "mtp"),)
    assert parsed("draft=none", table=table, KIND="mtp").asked.choices == ()


@pytest.mark.parametrize(
    ("flag", "text", "rule"),
    [
        ("--port", "7.0", "is not an integer"),
        ("--port", "1_000", "is not an integer"),
        ("--port", "", "is not an integer"),
        ("--temp", "hot", "is not a number"),
        ("--temp", "nan", "is not a finite number"),
        ("--temp", "1_0", "is not a finite number"),
        ("--chat-template-kwargs", "{a: 1}", "is not JSON"),
        ("--chat-template-kwargs", '{"a": NaN}', "is not JSON: NaN"),
        ("--chat-template-file", "/no/such/file", "is not a file"),
        ("--model", "weights/Q4.GGUF", "is a GGUF file"),
        ("--hf-repo", "owner/name:Q4_K_M", "has a :quant suffix"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused(flag: str, text: str, rule: str) -> None:
    [(key, said, _)] = problems(flag, text)
    assert key == flag
    assert said.startswith(rule)


def test_negative_numbers_are_values() -> None:
    assert values(parsed("--sse-ping-interval", "-1")) == {"server.sse_ping_interval": -1}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["-n", "-1"], {"live.sampling.max_tokens": 2147483647}),
        (["--seed", "-1"], {"live.sampling.seed": None}),
        (["--seed", "4294967295"], {"live.sampling.seed": None}),
        (["--seed", "-2"], {"live.sampling.seed": 4294967294}),
        (["-lv", "2"], {"observability.log.level": "warning"}),
        (["-lv", "9"], {"observability.log.level": "debug"}),
        (["-v"], {"observability.log.level": "debug"}),
    ],
)
def test_values_that_mean_something_else_here(argv: list[str], expected: dict[str, object]) -> None:
    assert values(parsed(*argv)) == expected


def test_metal_is_the_gpu() -> None:
    assert values(parsed(MLXCEL_DEVICE="metal")) == {"engine.device": "gpu"}


def test_a_decode_timeout_of_zero_is_300_with_a_warning() -> None:
    invocation = parsed("--decode-timeout", "0")
    assert values(invocation) == {"live.decode.timeout_seconds": 300}
    assert "300" in invocation.warnings[0]
    assert parsed("--decode-timeout", "1").warnings == ()


def test_the_chunk_flag_beats_the_batch_flag_with_a_warning() -> None:
    invocation = parsed("--prefill-chunk-size", "6", "-b", "5")
    assert values(invocation) == {"scheduler.prefill_chunk_size": 6}
    assert invocation.warnings == ("-b has no effect: --prefill-chunk-size beats it",)
    assert values(parsed("-b", "5", MLXCEL_PREFILL_CHUNK="6")) == {
        "scheduler.prefill_chunk_size": 5
    }
    env = {"LLAMA_ARG_BATCH": "5", "MLXCEL_PREFILL_CHUNK": "6"}
    assert values(parsed(**env)) == {"scheduler.prefill_chunk_size": 6}


def test_model_chooses_the_group_and_the_repository_beats_it() -> None:
    asked = parsed("-hf", "a/b", "-m", "c").asked
    assert asked.choices == (("model", "default"),)
    assert [(s.key, s.value) for s in asked.values] == [("model.path", "a/b")]


def test_a_model_variable_yields_to_a_word_that_chooses_a_model() -> None:
    asked = parsed("model=echo", LLAMA_ARG_MODEL="a/b").asked
    assert (asked.choices, asked.values) == ((), ())


def test_a_model_flag_and_another_choice_are_a_problem() -> None:
    assert problems("--model", "a/b", "model=echo") == [
        ("model=echo", "--model chooses model=default", "give one of the two")
    ]
    assert parsed("--model", "a/b", "model=default").asked.choices == (("model", "default"),)


@pytest.mark.parametrize(
    ("typo", "hint"),
    [
        ("--prot", "did you mean --port?"),
        ("--ctx_size", "did you mean --ctx-size?"),
        ("--server.port", "did you mean server.port=VALUE?"),
        ("--zzzzzzzzzzz", "see mlxcel --help"),
    ],
)
def test_an_unknown_flag_gets_the_nearest(typo: str, hint: str) -> None:
    assert problems(typo, "9") == [(typo, "unknown flag", hint)]
    assert problems(f"{typo}=9") == [(typo, "unknown flag", hint)]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("sevre", "did you mean serve?"),
        (
            "list",
            "the commands are serve, config, graph, connect; a model is named by --model NAME",
        ),
        ("graph", "a command comes first: mlxcel graph"),
    ],
)
def test_a_plain_word_where_none_belongs(word: str, hint: str) -> None:
    assert problems("--port", "1", word) == [(word, "neither a flag nor a key=value", hint)]


@pytest.mark.parametrize(
    "argv",
    [["--port"], ["--port", "--host", "x"], ["--port", "--host=x"]],
    ids=["end", "flag", "flag-with-value"],
)
def test_a_forgotten_value_does_not_take_the_next_flag(argv: list[str]) -> None:
    assert problems(*argv) == [("--port", "needs a value", "write --port=VALUE")]


def test_a_switch_takes_no_value() -> None:
    assert problems("--warmup=1") == [("--warmup", "takes no value", "")]


def test_an_inert_flag_that_asks_for_work_is_refused() -> None:
    [(key, rule, _)] = problems("-ngl", "0")
    assert key == "-ngl"
    assert rule.startswith("is not supported")


def test_all_problems_come_at_once() -> None:
    found = problems("--prot", "1", "--port", "x", "--no-jinja", "word", LLAMA_ARG_TOP_K="many")
    assert [key for key, *_ in found] == [
        "--prot",
        "--port",
        "--no-jinja",
        "word",
        "LLAMA_ARG_TOP_K",
    ]


def test_secrets_are_not_in_messages() -> None:
    table = one_row(flags=["--key"], key="k", type="secret", env=["KEY"], reject={"x": "no"})
    for argv, env in [(["--key", "hunter2x"], {}), ([], {"KEY": "hunter2x"})]:
        with pytest.raises(UsageError) as caught:
            parse(argv, env, table=table)
        assert "hunter2" not in caught.value.message
        assert "[redacted]" in caught.value.message


def test_recipes_and_folders_are_asked_for() -> None:
    asked = parsed("--recipe", "laptop", "--recipe", "./a,b.yaml", "--config-dir", "d").asked
    assert asked.recipes == ("laptop", "./a,b.yaml")
    assert asked.config_dirs == (Path("d"),)


def test_a_command_has_its_own_flags_with_defaults() -> None:
    assert parsed("graph").options == {"format": "text", "offline": False}
    invocation = parsed("graph", "--format", "json", "--offline")
    assert invocation.options == {"format": "json", "offline": True}
    assert invocation.asked.values == ()
    assert problems("serve", "--format", "json")[0][:2] == ("--format", "unknown flag")
    assert problems("graph", "--format", "dot")[0][1] == "is none of text, mermaid, json"


def test_help_wins_over_every_problem() -> None:
    assert parsed("--nonsense", "--help", LLAMA_ARG_PORT="x").options["help"] is True
    assert parsed("--nonsense", "--version").options["version"] is True


def test_both_front_ends_take_both_spellings_and_show_their_own() -> None:
    for program in ("mlxcel", "mlxcel-server"):
        for flag in ("--parallel", "--n-parallel", "-np"):
            assert values(parsed(flag, "2", program=program)) == {"scheduler.parallel": 2}
    rows = load_table().rows("serve")
    [row] = [row for row in rows if row.key == "scheduler.parallel"]
    assert (row.primary("mlxcel"), row.primary("mlxcel-server")) == ("--n-parallel", "--parallel")


def test_the_server_has_no_commands() -> None:
    with pytest.raises(UsageError) as caught:
        parsed("config", program="mlxcel-server")
    assert [p.key for p in caught.value.problems] == ["config"]


def test_what_was_asked_composes() -> None:
    from mlxcel.config.compose import compose
    from mlxcel.config.validate import validate

    argv = ["--port", "9", "-c", "8192", "--api-key", "k", "server.host=0.0.0.0", "model=echo"]
    composed = compose(parsed(*argv, LLAMA_ARG_N_PARALLEL="2", LLAMA_API_KEY="j").asked)
    tree: Any = composed.tree
    assert validate(composed) == []
    assert (tree["server"]["port"], tree["limits"]["ctx_size"]) == (9, 8192)
    assert tree["scheduler"]["parallel"] == 2
    assert tree["server"]["api_keys"] == ["j", "k"]
    assert tree["engine"]["kind"] == "echo"
