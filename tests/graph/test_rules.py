from typing import Any

import pytest

from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph import rules
from mlxcel.graph.rules import Rule, Settled
from mlxcel.graph.spec import Clamp
from tests.graph.sound_tree import card_of, tree


@pytest.mark.parametrize(
    ("rule", "values", "card", "key", "used"),
    [
        pytest.param(rules.settings_routes, {}, None, "routes.settings", True, id="loopback"),
        pytest.param(
            rules.settings_routes,
            {"server__host": "0.0.0.0", "server__api_keys": ["k"]},
            None,
            "routes.settings",
            True,
            id="open-with-key",
        ),
        pytest.param(
            rules.settings_routes,
            {"server__host": "::1"},
            None,
            "routes.settings",
            True,
            id="loopback-of-ip6",
        ),
        pytest.param(
            rules.settings_routes,
            {"server__host": "[::1]"},
            None,
            "routes.settings",
            True,
            id="loopback-in-brackets",
        ),
    ],
)
def test_open_value_is_settled(
    rule: Rule, values: dict[str, Any], card: Card | None, key: str, used: object
) -> None:
    assert list(rule(tree(**values), card)) == [Settled(key=key, used=used)]


@pytest.mark.parametrize(
    ("rule", "values", "card", "key", "asked", "used"),
    [
        pytest.param(
            rules.settings_routes,
            {"server__host": "0.0.0.0"},
            None,
            "routes.settings",
            "auto",
            False,
            id="open-without-key",
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
            rules.model_named, {"model__path": None}, "model.path", "needs a model", id="no-model"
        ),
        pytest.param(
            rules.engine_fits_model,
            {"engine__kind": "echo"},
            "engine.kind",
            "cannot run a model of the kind mlx",
            id="echo-engine-for-weights",
        ),
        pytest.param(
            rules.engine_fits_model,
            {"model__kind": "echo"},
            "engine.kind",
            "cannot run a model of the kind echo",
            id="mlx-engine-without-weights",
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
    "prefix", ["llm", "/", "/llm/", "/a//b", "/a?b", "/a#b", "/a b", "/a\n", "/a\x7f"]
)
def test_prefix_that_is_no_path_is_a_problem(prefix: str) -> None:
    (problem,) = rules.prefix_grammar(tree(server__api_prefix=prefix), None)
    assert isinstance(problem, Problem)
    assert problem.value == prefix


@pytest.mark.parametrize(
    ("rule", "values", "words"),
    [
        pytest.param(
            rules.open_listener, {"server__host": "0.0.0.0"}, "no API key is set", id="open"
        ),
        pytest.param(
            rules.open_listener, {"server__host": "box.lan"}, "no API key is set", id="by-name"
        ),
        pytest.param(
            rules.worker_placement,
            {"workers__placement": "thread"},
            "takes the server",
            id="thread",
        ),
        pytest.param(
            rules.worker_placement,
            {"workers__placement": "inline"},
            "takes the server",
            id="inline",
        ),
        pytest.param(
            rules.prefixed_health,
            {"server__api_prefix": "/llm", "server__api_keys": ["k"]},
            "/llm/health needs a key",
            id="health-behind-a-prefix",
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
        pytest.param(rules.settings_routes, {"routes__settings": False}, None, id="routes-off"),
        pytest.param(rules.model_named, {}, None, id="named"),
        pytest.param(
            rules.model_named, {"model__path": None, "model__source": {}}, None, id="by-source"
        ),
        pytest.param(rules.prefix_grammar, {}, None, id="no-prefix"),
        pytest.param(rules.prefix_grammar, {"server__api_prefix": "/a/b"}, None, id="prefix"),
        pytest.param(rules.open_listener, {"server__host": "localhost"}, None, id="localhost"),
        pytest.param(
            rules.open_listener,
            {"server__host": "0.0.0.0", "server__api_key_files": ["keys"]},
            None,
            id="key-file",
        ),
        pytest.param(rules.worker_placement, {}, None, id="process"),
    ],
)
def test_sound_values_pass(rule: Rule, values: dict[str, Any], card: Card | None) -> None:
    assert list(rule(tree(**values), card)) == []
