"""Every problem at once, each with what would work."""

from pathlib import Path

import pytest

from mlxcel.config.asked import Asked
from mlxcel.config.compose import compose
from mlxcel.config.problems import render_problems
from mlxcel.config.rules import described
from mlxcel.config.schema import rule_of, section_schema, tree_schema
from mlxcel.config.validate import broken_rules, nearest_key, validate
from mlxcel.core.problem import Problem


def problems(*words: str) -> list[Problem]:
    return validate(compose(Asked(overrides=words)))


def test_unknown_key_and_wrong_type_are_told_together() -> None:
    found = {
        problem.key: problem for problem in problems("server.prot=1", "scheduler.parallel=many")
    }
    assert found.keys() == {"server.prot", "scheduler.parallel"}
    assert found["server.prot"].hint == "did you mean server.port?"
    assert found["server.prot"].source == "command line: server.prot=1"
    assert found["scheduler.parallel"].rule == "is not an integer"
    assert found["scheduler.parallel"].source == "command line: scheduler.parallel=many"


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        pytest.param("server.port=70000", "is greater than the maximum of 65535", id="maximum"),
        pytest.param("server.port=-1", "is less than the minimum of 0", id="minimum"),
        pytest.param("server.port=8080.0", "is not an integer", id="float"),
        pytest.param("server.port=true", "is not an integer", id="bool-as-integer"),
        pytest.param("server.port=null", "is not an integer", id="null"),
        pytest.param("live.sampling.temperature=false", "is not a number", id="bool-as-number"),
        pytest.param("live.sampling.temperature=nan", "is not a number", id="nan"),
        pytest.param("live.sampling.temperature=inf", "is not a number", id="infinity"),
        pytest.param("live.sampling.top_p=0", "is not greater than 0", id="exclusive"),
        pytest.param("live.sampling.seed=x", "is not an integer or null", id="or-null"),
        pytest.param("live.chat_template.kwargs=1", "is not an object", id="mapping"),
        pytest.param("model.alias=x", "is not a list", id="list"),
        pytest.param('model.alias=[""]', "is empty", id="empty-item"),
        pytest.param("scheduler.prefill_chunk_size=-1", "is less than the minimum", id="chunk"),
        pytest.param(
            "scheduler.prefill_chunk_size=x", "is not an integer or null", id="chunk-word"
        ),
        pytest.param("server.warmup=1", "is not true or false", id="boolean"),
        pytest.param("server.sse_ping_interval=0", "must not be 0", id="not-zero"),
        pytest.param("scheduler.parallel=0", "must not be 0", id="no-rows"),
        pytest.param("model.precision=int4", "is not one of auto", id="enum"),
        pytest.param("routes.settings=1", "is not one of auto, true, false", id="one-is-not-true"),
        pytest.param("engine.kind=none", "is not one of mlx, echo", id="kind"),
        pytest.param("engine.node.factory=os:system", "does not match", id="foreign-factory"),
        pytest.param("server.cors=5", "is not an object", id="section"),
    ],
)
def test_value_that_breaks_a_rule(word: str, rule: str) -> None:
    [problem] = problems(word)
    assert problem.rule.startswith(rule)
    assert problem.key == word.partition("=")[0] or problem.key.endswith("[0]")
    assert problem.source == f"command line: {word}"


def test_an_empty_key_is_no_key() -> None:
    [problem] = problems('server.api_keys=[""]')
    assert (problem.key, problem.rule) == ("server.api_keys[0]", "is empty")


@pytest.mark.parametrize(
    ("word", "key"),
    [
        pytest.param("engine.script=[{when: a}]", "engine.script[0].say", id="missing-in-item"),
        pytest.param('engine.script=[{when: "(", say: a}]', "engine.script[0].when", id="regex"),
        pytest.param(
            "engine.faults=[{when: a, at_token: 1, kind: boom}]", "engine.faults[0].kind", id="kind"
        ),
    ],
)
def test_item_of_a_list_is_named(word: str, key: str) -> None:
    [problem] = problems("model=echo", word)
    assert problem.key == key
    assert problem.source == f"command line: {word}"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        pytest.param("sever.port=1", "did you mean server.port?", id="section"),
        pytest.param("port=1", "did you mean server.port?", id="key-without-section"),
        pytest.param("modle=qwen3", "did you mean model?", id="group"),
        pytest.param(
            "embedding=default", "no such group here; there are: model, draft, engine", id="later"
        ),
        pytest.param("server.zzzzzzzzzzzzzz=1", "mlxcel config explain", id="like-nothing"),
        pytest.param("engine.windwo=1", "did you mean engine.window?", id="of-another-kind"),
    ],
)
def test_unknown_key_gets_the_nearest(word: str, hint: str) -> None:
    [problem] = problems(word)
    assert hint in problem.hint


def test_each_leaf_of_an_unknown_section_gets_its_own_twin() -> None:
    hints = {problem.hint for problem in problems("+sever={port: 1, hots: x}")}
    assert hints == {"did you mean server.port?", "did you mean server.host?"}


def test_removed_section_is_missed() -> None:
    [problem] = problems("~server")
    assert (problem.key, problem.rule) == ("server", "section is missing")
    assert problem.hint.startswith("it cannot be removed: choose an option of it (server=NAME)")
    assert problem.source == "command line: ~server"


def test_every_removed_key_is_missed_by_name() -> None:
    found = problems("~server.port", "~server.host")
    assert [p.key for p in found] == ["server.host", "server.port"]
    assert {p.rule for p in found} == {"key is missing"}


def test_recipe_without_its_header_is_told_the_line(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "bare.yaml").write_text("server: {port: 1}\n")
    composed = compose(Asked(overrides=("recipes=bare",), config_dirs=(tmp_path,)))
    [problem] = validate(composed)
    assert "# @package _global_" in problem.hint
    assert problem.source == f"{tmp_path}/recipes/bare.yaml:1"


def test_question_marks_ask_for_a_value(tmp_path: Path) -> None:
    option = tmp_path / "limits" / "mine.yaml"
    option.parent.mkdir()
    option.write_text(
        "ctx_size: ???\nhttp_timeout_secs: 1\nbody_bytes: 0\nrequest_memory_budget: null\n"
        "websocket_secs: 0\n"
        "media_path: null\nallow_private_media_urls: false\n"
        "image: {payload_bytes: 1, max_images: 1}\nvideo: {dir_allowlist: []}\n"
        "responses_store: {max_entries: 1, max_bytes: 1, ttl_secs: 1, file: null}\n"
        "conversation_store: {max_entries: 1, max_bytes: 1, ttl_secs: 1}\n"
    )
    asked = Asked(overrides=("limits=mine",), config_dirs=(tmp_path,))
    found = validate(compose(asked))
    assert [(p.key, p.rule, p.source) for p in found] == [
        ("limits.ctx_size", "needs a value", f"{option}:1"),
        ("limits.body_bytes", "is less than the minimum of 16384", f"{option}:3"),
    ]


def test_table_is_aligned() -> None:
    rows = [
        Problem(key="server.port", value=70000, rule="is too high", source="recipes/studio.yaml:6"),
        Problem(key="x", value=None, rule="unknown key", hint="did you mean y?", source="here"),
    ]
    assert render_problems(rows) == (
        "conf: 2 problems\n"
        "  server.port = 70000  is too high                   recipes/studio.yaml:6\n"
        "  x                    unknown key; did you mean y?  here"
    )


def test_nearest_of_given_keys() -> None:
    assert nearest_key("b.prot", ["b.port", "c.port"]) == "b.port"
    assert nearest_key("qqqq", ["b.port"]) is None


def test_one_value_is_checked_by_the_same_words() -> None:
    rule = rule_of(section_schema("live"), "sampling.top_p")
    assert rule is not None
    assert broken_rules(rule, 2) == ["is greater than the maximum of 1"]
    assert broken_rules(rule, 1) == []


def test_rule_in_words_names_bounds_and_unit() -> None:
    rule = rule_of(tree_schema({}), "server.sse_ping_interval")
    assert rule is not None
    assert described(rule) == "an integer, at least -1, not 0, in seconds"
