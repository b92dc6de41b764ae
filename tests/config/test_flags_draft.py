"""Flags and variables that choose and tune a drafter, and what they mean beside each other."""

from functools import cache
from typing import Any

import pytest

from mlxcel.config.asked import Composed
from mlxcel.config.compose import compose
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.validate import validate
from tests.config.reading import parsed, problems, values

FOLDER = ("--model-draft", "d")


def kind(*argv: str, **env: str) -> str | None:
    """The option chosen; None: nothing is, which means none."""
    return dict(parsed(*argv, **env).asked.choices).get("draft")


def composed(*argv: str, **env: str) -> Composed:
    return compose(parsed(*argv, **env).asked)


def section(*argv: str, **env: str) -> dict[str, Any]:
    """What is set, and is valid."""
    return _section(argv, tuple(env.items()))


@cache
def _section(argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    made = composed(*argv, **dict(env))
    assert validate(made) == []
    draft: dict[str, Any] = made.tree["draft"]
    return draft


@pytest.mark.parametrize(
    ("argv", "env", "chosen"),
    [
        pytest.param((), {}, None, id="nothing"),
        pytest.param(FOLDER, {}, "auto", id="path-alone"),
        pytest.param(("--draft-model=d",), {}, "auto", id="as-mlx-lm-spells-it"),
        pytest.param((), {"LLAMA_ARG_MODEL_DRAFT": "d"}, "auto", id="path-in-a-variable"),
        pytest.param(("--draft-kind", "dflash", *FOLDER), {}, "dflash", id="kind-first"),
        pytest.param((*FOLDER, "--draft-kind", "mtp"), {}, "mtp", id="kind-last"),
        pytest.param(("--draft-kind", "full-model", *FOLDER), {}, "full_model", id="full-model"),
        pytest.param(("--draft-kind", "auto"), {}, "auto", id="auto"),
        pytest.param(("--draft-kind", "mtp"), {}, "mtp", id="mtp"),
        pytest.param(FOLDER, {"MLXCEL_DRAFT_KIND": "dflash"}, "dflash", id="kind-in-a-variable"),
        pytest.param(
            ("--draft-kind=mtp",), {"LLAMA_ARG_MODEL_DRAFT": "d"}, "mtp", id="path-there-for-good"
        ),
        pytest.param(("--prompt-lookup",), {}, "prompt_lookup", id="prompt-lookup"),
        pytest.param(
            ("--prompt-lookup",),
            {"LLAMA_ARG_MODEL_DRAFT": "d"},
            "prompt_lookup",
            id="prompt-lookup-beats-a-variable",
        ),
        pytest.param(("--spec-type", "draft-mtp"), {}, "mtp", id="spec-mtp"),
        pytest.param(("--spec-type=draft-dflash", *FOLDER), {}, "dflash", id="spec-dflash"),
        pytest.param(("--spec-type", "none", *FOLDER), {}, "none", id="spec-none"),
        pytest.param(
            ("--spec-type", "draft-mtp", "--draft-kind", "mtp"), {}, "mtp", id="spec-agrees"
        ),
        pytest.param(
            ("--draft-kind=mtp",), {"LLAMA_ARG_SPEC_TYPE": "draft-dflash"}, "mtp", id="flag-wins"
        ),
    ],
)
def test_which_kind_is_chosen(argv: tuple[str, ...], env: dict[str, str], chosen: str) -> None:
    assert kind(*argv, **env) == chosen


@pytest.mark.parametrize(
    ("argv", "key", "said"),
    [
        pytest.param(("--draft-kind=internal-mtp",), "--draft-kind", ["auto"], id="internal"),
        pytest.param(("--draft-kind=classic",), "--draft-kind", ["full-model"], id="classic"),
        pytest.param(
            ("--draft-kind=eagle",),
            "--draft-kind",
            ["none, auto, prompt-lookup, full-model, dflash, mtp"],
            id="unknown",
        ),
        pytest.param(
            ("--spec-type=draft-simple",), "--spec-type", ["full-model"], id="spec-simple"
        ),
        pytest.param(("--spec-type=draft-eagle3",), "--spec-type", ["dflash"], id="spec-eagle3"),
        pytest.param(("--spec-type=draft-dspark",), "--spec-type", ["dflash"], id="spec-dspark"),
        pytest.param(
            ("--spec-type=ngram-mod",), "--spec-type", ["--prompt-lookup"], id="spec-ngram"
        ),
        pytest.param(
            ("--spec-type=draft-mtp,ngram-mod",), "--spec-type", ["several"], id="spec-two"
        ),
        pytest.param(
            ("--spec-type=other",),
            "--spec-type",
            ["none, draft-mtp, draft-dflash"],
            id="spec-unknown",
        ),
        pytest.param(
            ("--spec-type=draft-mtp", "--draft-kind=dflash"),
            "--draft-kind",
            ["draft=dflash", "--spec-type", "draft=mtp"],
            id="spec-against-kind",
        ),
        pytest.param(
            ("--draft-kind=mtp", "--spec-type=none"),
            "--spec-type",
            ["draft=none", "--draft-kind", "draft=mtp"],
            id="spec-none-against-kind",
        ),
        pytest.param(
            ("--draft-kind=prompt-lookup", *FOLDER),
            "--model-draft",
            ["--draft-kind (draft=prompt_lookup)"],
            id="prompt-lookup-with-a-drafter",
        ),
        pytest.param(
            ("draft=prompt_lookup", *FOLDER),
            "--model-draft",
            ["draft=prompt_lookup"],
            id="word-with-a-drafter",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    argv: tuple[str, ...], key: str, said: list[str]
) -> None:
    [(found, rule, _)] = problems(*argv)
    assert found == key
    assert all(word in rule for word in said), rule


def test_variables_that_contradict_each_other_are_refused() -> None:
    both = {"MLXCEL_DRAFT_KIND": "prompt-lookup", "LLAMA_ARG_MODEL_DRAFT": "d"}
    assert problems(**both)[0][0] == "LLAMA_ARG_MODEL_DRAFT"
    both = {"MLXCEL_DRAFT_KIND": "mtp", "LLAMA_ARG_SPEC_TYPE": "draft-dflash"}
    [(_, rule, _)] = problems(**both)
    assert "draft=mtp" in rule
    assert "draft=dflash" in rule


@pytest.mark.parametrize("word", ["draft=full_model", "draft=dflash"])
def test_a_kind_that_reads_a_drafter_wants_its_path(word: str) -> None:
    [problem] = validate(composed(word))
    assert (problem.key, problem.rule) == ("draft.path", "needs a value")
    assert "folder" in problem.hint


def test_a_kind_that_reads_none_refuses_a_path() -> None:
    [problem] = validate(composed("draft=prompt_lookup", "draft.path=d"))
    assert (problem.key, problem.rule) == ("draft.path", "is no key of draft=prompt_lookup")


def test_heads_inside_the_model_are_found_and_not_chosen() -> None:
    with pytest.raises(ConfigErrors, match="draft=auto"):
        composed("draft=internal-mtp")


@pytest.mark.parametrize("off", [("--draft-kind=none",), ("--spec-type=none",), ("draft=none",)])
def test_none_is_off_whatever_stands_beside_it(off: tuple[str, ...]) -> None:
    words = (*off, *FOLDER, "--draft-block-size=4", "--draft-max=3")
    assert section(*words, MLXCEL_MTP_ADAPTIVE="0") == {"kind": "none"}
    assert any("--model-draft has no effect" in warning for warning in parsed(*words).warnings)


@pytest.mark.parametrize(
    ("argv", "key", "value"),
    [
        pytest.param(("draft=prompt_lookup",), "max_draft", 5, id="prompt-lookup"),
        pytest.param(("draft=full_model", *FOLDER), "max_draft", 5, id="full-model"),
        pytest.param(("draft=dflash", *FOLDER), "block_size", 5, id="dflash"),
        pytest.param(("draft=mtp",), "block_size", 5, id="mtp"),
        pytest.param(("draft=auto",), "block_size", 5, id="auto"),
    ],
)
def test_the_width_goes_where_the_kind_has_it(argv: tuple[str, ...], key: str, value: int) -> None:
    assert section(*argv, "--draft-block-size", "5")[key] == value


def test_the_width_of_a_variable_goes_there_too() -> None:
    assert section("draft=mtp", MLXCEL_DRAFT_BLOCK_SIZE="5")["block_size"] == 5
    assert section("draft=prompt_lookup", MLXCEL_DRAFT_BLOCK_SIZE="5")["max_draft"] == 5


def test_a_word_that_sets_another_width_contradicts_the_flag() -> None:
    with pytest.raises(ConfigErrors, match="5 by --draft-block-size"):
        composed("draft=mtp", "draft.block_size=4", "--draft-block-size=5")


def test_a_number_of_proposals_gives_way_to_a_width() -> None:
    both = ("--draft-max", "3", "--draft-block-size", "9")
    assert values(parsed(*both)) == {"draft.max_draft": 9}
    assert values(parsed("--draft-max", "3", MLXCEL_DRAFT_BLOCK_SIZE="9")) == {"draft.n_max": 3}
    assert values(parsed("--draft-max", "16")) == values(parsed(LLAMA_ARG_DRAFT_MAX="16")) == {}


MTP_VARIABLES = {
    "MLXCEL_MTP_ADAPTIVE": "0",
    "MLXCEL_ENABLE_MTP_B1": "0",
    "MLXCEL_ENABLE_MTP_BATCH": "1",
    "MLXCEL_MTP_ALLOW_INEXACT": "1",
    "MLXCEL_MTP_QUANTIZE_DRAFTER": "0",
    "MLXCEL_GLM_MTP_HIDDEN_TAP": "pre",
    "MLXCEL_MTP_TICK_SLICE": "0",
    "MLXCEL_MTP_SLICE_GRANT_ROUNDS": "2",
    "MLXCEL_MTP_BLOCK_CONTROLLER": "proxy",
    "MLXCEL_GDN_CHAIN_PARITY": "1",
}


def test_variables_tune_mtp() -> None:
    changed = {"adaptive": False, "force": False, "max_batch": 4, "allow_inexact": True}
    assert section("draft=mtp", **MTP_VARIABLES) == {
        **section("draft=mtp"),
        **changed,
        "quantize": False,
        "glm_hidden_tap": "pre",
    }
    assert section("draft=mtp", MLXCEL_ENABLE_MTP_BATCH="0") == section("draft=mtp")


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(("--prompt-lookup",), id="prompt-lookup"),
        pytest.param(("--draft-kind=dflash", *FOLDER), id="dflash"),
    ],
)
def test_variables_of_mtp_change_nothing_for_others(argv: tuple[str, ...]) -> None:
    assert section(*argv, **MTP_VARIABLES) == section(*argv)


@pytest.mark.parametrize("argv", [("draft=full_model", *FOLDER), ("draft=mtp",)])
def test_variables_of_all_kinds(argv: tuple[str, ...]) -> None:
    env = {"MLXCEL_SPECULATIVE_STOCHASTIC_ACCEPT": "1", "MLXCEL_SPECULATIVE_ACCEPT_DIAG": "on"}
    changed = {"stochastic_accept": True, "accept_diag": True}
    assert section(*argv, **env) == {**section(*argv), **changed}
    assert section("draft=prompt_lookup", **env)["accept_diag"] is True
