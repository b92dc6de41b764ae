import copy
from typing import Any

import pytest

from mlxcel.config.keys import write
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph import rules
from mlxcel.graph.rules import Rule, Settled
from mlxcel.graph.spec import Clamp

TREE: dict[str, Any] = {
    "model": {"kind": "mlx", "path": "/models/tiny", "source": None, "precision": "auto"},
    "engine": {"kind": "mlx"},
    "scheduler": {"parallel": 4},
    "live": {"sampling": {"max_tokens": 512}},
    "limits": {"ctx_size": 0},
    "workers": {"placement": "process"},
    "server": {
        "host": "127.0.0.1",
        "port": 8080,
        "api_prefix": "",
        "api_keys": [],
        "api_key_files": [],
    },
    "routes": {"settings": "auto", "rows": {"a": {}, "b": {}}},
}


def card_of(*, train_window: int = 8192) -> Card:
    return Card(name="tiny", family="llama", train_window=train_window)


ONE_ROW = Card(
    name="tiny", family="jamba", train_window=8192, can_batch=False, reason="recurrent state"
)


def tree(**values: Any) -> dict[str, Any]:
    """TREE with dotted keys set, their dots written as double underscores."""
    made = copy.deepcopy(TREE)
    for name, value in values.items():
        write(made, name.replace("__", "."), value)
    return made


@pytest.mark.parametrize(
    ("rule", "values", "card", "key", "used"),
    [
        pytest.param(
            rules.row_count, {"scheduler__parallel": -1}, None, "scheduler.parallel", 4, id="rows"
        ),
        pytest.param(rules.window_told, {}, card_of(), "model.train_window", 8192, id="window"),
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
            rules.single_row_family, {}, ONE_ROW, "scheduler.parallel", 4, 1, id="one-row-family"
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
            rules.least_window,
            {"limits__ctx_size": 2047},
            "limits.ctx_size",
            "511 tokens per slot (2047 / 4)",
            id="window-511",
        ),
        pytest.param(
            rules.least_window,
            {"limits__ctx_size": 3},
            "limits.ctx_size",
            "gives 0 tokens",
            id="window-0",
        ),
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


@pytest.mark.parametrize("host", ["/run/mlxcel.sock", "mlxcel.sock", "./socket"])
def test_unix_socket_is_a_problem_that_says_so(host: str) -> None:
    (problem,) = rules.tcp_listener(tree(server__host=host), None)
    assert isinstance(problem, Problem)
    assert (problem.key, problem.value) == ("server.host", host)
    assert "a Unix socket is not built yet" in problem.rule


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
        pytest.param(rules.row_count, {}, None, id="rows-given"),
        pytest.param(rules.single_row_family, {}, None, id="model-not-looked-at"),
        pytest.param(rules.single_row_family, {}, card_of(), id="family-batches"),
        pytest.param(rules.single_row_family, {"scheduler__parallel": 1}, ONE_ROW, id="one-row"),
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
        pytest.param(rules.settings_routes, {"routes__settings": False}, None, id="routes-off"),
        pytest.param(rules.model_named, {}, None, id="named"),
        pytest.param(
            rules.model_named, {"model__path": None, "model__source": {}}, None, id="by-source"
        ),
        pytest.param(rules.prefix_grammar, {}, None, id="no-prefix"),
        pytest.param(rules.tcp_listener, {"server__host": "::1"}, None, id="address"),
        pytest.param(rules.tcp_listener, {"server__host": "box.lan"}, None, id="host-name"),
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
