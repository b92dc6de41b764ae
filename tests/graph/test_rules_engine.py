"""Rules of slots, memory and sampling."""

from typing import Any

import pytest

from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.core.window import slot_count, slot_share
from mlxcel.graph import rules
from mlxcel.graph.rules import Rule, Settled
from mlxcel.graph.spec import Clamp
from tests.graph.sound_tree import ONE_ROW, card_of, tree


@pytest.mark.parametrize(
    ("rule", "values", "card", "key", "used"),
    [
        pytest.param(
            rules.row_count, {"scheduler__parallel": -1}, None, "scheduler.parallel", 4, id="rows"
        ),
        pytest.param(
            rules.batch_width, {}, None, "scheduler.max_batch_size", 4, id="as-wide-as-slots"
        ),
        pytest.param(
            rules.batch_width,
            {"scheduler__no_batch": True},
            None,
            "scheduler.max_batch_size",
            1,
            id="no-batch-is-one-row",
        ),
        pytest.param(
            rules.unbounded_kv, {"cache__kv_budget": "none"}, None, "cache.kv_budget", 0, id="none"
        ),
        pytest.param(
            rules.unbounded_kv, {"cache__kv_budget": None}, None, "cache.kv_budget", 0, id="null"
        ),
        pytest.param(
            rules.reasoning_words,
            {"generation__reasoning__enabled": True},
            None,
            "generation.reasoning.enabled",
            "on",
            id="yaml-on",
        ),
        pytest.param(
            rules.reasoning_words,
            {"generation__reasoning__enabled": False},
            None,
            "generation.reasoning.enabled",
            "off",
            id="yaml-off",
        ),
        pytest.param(
            rules.reasoning_words,
            {"generation__reasoning__alias_field": "none"},
            None,
            "generation.reasoning.alias_field",
            None,
            id="no-alias",
        ),
    ],
)
def test_open_value_is_settled(
    rule: Rule, values: dict[str, Any], card: Card | None, key: str, used: object
) -> None:
    assert list(rule(tree(**values), card)) == [Settled(key=key, used=used)]


def test_worker_and_settings_learn_what_the_card_says() -> None:
    assert list(rules.window_told(tree(), card_of())) == [
        Settled(key="model.train_window", used=8192),
        Settled(key="model.family", used="llama"),
    ]


@pytest.mark.parametrize(
    ("rule", "values", "card", "key", "asked", "used"),
    [
        pytest.param(
            rules.single_row, {}, ONE_ROW, "scheduler.parallel", 4, 1, id="one-row-family"
        ),
        pytest.param(
            rules.single_row,
            {"scheduler__parallel": 1, "scheduler__max_batch_size": 8},
            ONE_ROW,
            "scheduler.max_batch_size",
            8,
            1,
            id="one-row-family-in-spite-of-a-batch-size",
        ),
        pytest.param(
            rules.single_row,
            {"scheduler__no_batch": True},
            None,
            "scheduler.parallel",
            4,
            1,
            id="no-batch",
        ),
        pytest.param(
            rules.dense_storage,
            {"cache__decode_storage": "paged"},
            None,
            "cache.decode_storage",
            "paged",
            "dense",
            id="no-paged-kernel",
        ),
        pytest.param(
            rules.window_of_model,
            {"limits__ctx_size": 100_000, "scheduler__max_batch_size": 2},
            card_of(),
            "limits.ctx_size",
            100_000,
            16_384,
            id="more-than-trained-on-by-batch-size",
        ),
        pytest.param(
            rules.window_of_model,
            {"limits__ctx_size": 100_000},
            card_of(),
            "limits.ctx_size",
            100_000,
            32_768,
            id="more-than-trained-on",
        ),
        pytest.param(
            rules.answer_fits_slot,
            {"limits__ctx_size": 4096, "live__sampling__max_tokens": 1025},
            None,
            "live.sampling.max_tokens",
            1025,
            1024,
            id="answer-longer-than-a-slot",
        ),
    ],
)
def test_value_gives_way(
    rule: Rule, values: dict[str, Any], card: Card | None, key: str, asked: object, used: object
) -> None:
    (clamp,) = rule(tree(**values), card)
    assert isinstance(clamp, Clamp)
    assert (clamp.key, clamp.asked, clamp.used) == (key, asked, used)
    assert clamp.reason


@pytest.mark.parametrize(
    ("rule", "values", "key", "words"),
    [
        pytest.param(
            rules.least_window,
            {"limits__ctx_size": 2047},
            "limits.ctx_size",
            "511 tokens per slot (2047 / 4)",
            id="window-511",
        ),
        pytest.param(
            rules.least_window,
            {"limits__ctx_size": 2049, "scheduler__max_batch_size": 8},
            "limits.ctx_size",
            "256 tokens per slot (2049 / 8)",
            id="window-by-batch-size",
        ),
        pytest.param(
            rules.adapters_have_weights,
            {"model__kind": "echo", "model__lora__adapters": [{"path": "style", "scale": 1.0}]},
            "model.lora.adapters",
            "has no weights",
            id="adapters-of-a-script",
        ),
        pytest.param(
            rules.least_window,
            {"limits__ctx_size": 3},
            "limits.ctx_size",
            "gives 0 tokens",
            id="window-0",
        ),
    ],
)
def test_conflict_is_a_problem(rule: Rule, values: dict[str, Any], key: str, words: str) -> None:
    (problem,) = rule(tree(**values), card_of())
    assert isinstance(problem, Problem)
    assert problem.key == key
    assert words in problem.rule
    assert problem.hint


@pytest.mark.parametrize(
    ("rule", "values", "words"),
    [
        pytest.param(
            rules.adaptive_named,
            {"generation__sampling__adaptive__target": 0.5},
            "target=0.5 has no effect",
            id="adaptive-p-not-named",
        ),
    ],
)
def test_risk_is_a_warning(rule: Rule, values: dict[str, Any], words: str) -> None:
    (warning,) = rule(tree(**values), None)
    assert isinstance(warning, str)
    assert words in warning


@pytest.mark.parametrize(
    ("rule", "values", "card"),
    [
        pytest.param(rules.row_count, {}, None, id="rows-given"),
        pytest.param(rules.single_row, {}, None, id="model-not-looked-at"),
        pytest.param(rules.single_row, {}, card_of(), id="family-batches"),
        pytest.param(rules.single_row, {"scheduler__parallel": 1}, ONE_ROW, id="one-row"),
        pytest.param(rules.batch_width, {"scheduler__max_batch_size": 2}, None, id="width-given"),
        pytest.param(rules.dense_storage, {}, None, id="storage-left-open"),
        pytest.param(rules.unbounded_kv, {}, None, id="budget-by-itself"),
        pytest.param(rules.unbounded_kv, {"cache__kv_budget": 4096}, None, id="budget-in-bytes"),
        pytest.param(rules.adaptive_named, {}, None, id="adaptive-off"),
        pytest.param(
            rules.adaptive_named,
            {"generation__sampling__adaptive": {"named": True, "target": 0.0}},
            None,
            id="adaptive-named",
        ),
        pytest.param(rules.reasoning_words, {}, None, id="thinking-as-the-model-does"),
        pytest.param(rules.languages_named, {}, None, id="no-language"),
        pytest.param(
            rules.languages_named,
            {"live__lang_bias": {"bias_set": {"ordered": [["ja", -5.0]]}}},
            None,
            id="a-language",
        ),
        pytest.param(
            rules.languages_named,
            {"live__lang_bias": {"policy": "Strict"}, "generation__lang_bias__file": "bias.yaml"},
            None,
            id="languages-to-come-from-a-file",
        ),
        pytest.param(rules.adapters_have_weights, {}, None, id="no-adapter"),
        pytest.param(
            rules.adapters_have_weights,
            {"model__lora__adapters": [{"path": "style", "scale": 1.0}]},
            None,
            id="adapters-of-weights",
        ),
        pytest.param(
            rules.window_of_model, {"limits__ctx_size": 32_768}, card_of(), id="just-fits"
        ),
        pytest.param(
            rules.window_of_model,
            {"limits__ctx_size": 99_999},
            card_of(train_window=0),
            id="window-not-known",
        ),
        pytest.param(rules.window_told, {}, None, id="no-window-to-tell"),
        pytest.param(rules.answer_fits_slot, {}, None, id="answer-in-the-models-window"),
        pytest.param(
            rules.answer_fits_slot, {"limits__ctx_size": 2048}, None, id="answer-of-a-whole-slot"
        ),
        pytest.param(rules.least_window, {"limits__ctx_size": 0}, card_of(), id="own-window"),
        pytest.param(rules.least_window, {"limits__ctx_size": 2048}, card_of(), id="window-512"),
        pytest.param(
            rules.least_window, {"limits__ctx_size": 100}, None, id="window-not-yet-known"
        ),
        pytest.param(
            rules.least_window,
            {"limits__ctx_size": 512},
            card_of(train_window=128),
            id="all-that-a-tiny-model-has",
        ),
    ],
)
def test_sound_values_pass(rule: Rule, values: dict[str, Any], card: Card | None) -> None:
    assert list(rule(tree(**values), card)) == []


def test_a_policy_without_a_language_is_for_nothing() -> None:
    warning, settled = rules.languages_named(tree(live__lang_bias={"policy": "Strict"}), card_of())
    assert isinstance(warning, str)
    assert "names no language" in warning
    assert settled == Settled(key="live.lang_bias", used=None)


@pytest.mark.parametrize(
    ("ctx_size", "scheduler", "window"),
    [
        pytest.param(8192, {}, 2048, id="by-slots"),
        pytest.param(8192, {"scheduler__max_batch_size": 2}, 4096, id="by-batch-size"),
        pytest.param(2049, {}, 512, id="just-enough"),
        pytest.param(8192, {"scheduler__no_batch": True}, 8192, id="not-divided"),
        pytest.param(0, {}, 0, id="the-models-own"),
    ],
)
def test_the_context_is_divided_as_the_contract_says(
    ctx_size: int, scheduler: dict[str, Any], window: int
) -> None:
    """Section 4 of engine-scheduler.md; 2047 among 4 is refused above."""
    made = tree(limits__ctx_size=ctx_size, **scheduler)
    assert slot_share(ctx_size, slot_count(made["scheduler"])) == window
    assert list(rules.least_window(made, card_of(train_window=131_072))) == []
