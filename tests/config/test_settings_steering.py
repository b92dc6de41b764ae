"""Live settings of thinking, repetition and languages: their shapes, and what is published."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.config.bias_file import read_bias_file
from mlxcel.config.settings import SettingsStore
from mlxcel.core.errors import StartupError
from mlxcel.core.settings import LanguageBias
from mlxcel.core.steering import LoopGuard
from tests.config.live_store import new_store

LOOP = {"max_pattern_size": 20, "min_pattern_size": 1, "min_count": 4}
LANGUAGES: dict[str, Any] = {
    "bias_set": {"ordered": [["ja", -5.0]]},
    "policy": "Conservative",
    "exceptions": {
        "include_special": False,
        "include_numeric": False,
        "include_punctuation": False,
        "include_byte_fragments": False,
    },
    "rebuild_cache": False,
}


@pytest.fixture
def store() -> SettingsStore:
    return new_store()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reasoning_budget", -1),
        ("reasoning_budget", 0),
        ("reasoning_budget", 2147483647),
        ("loop_detection", None),
        ("loop_detection", LOOP),
        ("loop_detection", {"max_pattern_size": 0, "min_pattern_size": 0, "min_count": 0}),
        ("lang_bias_config", None),
        ("lang_bias_config", LANGUAGES),
        ("lang_bias_config", {**LANGUAGES, "policy": "Strict"}),
        ("lang_bias_config", {**LANGUAGES, "bias_set": {"ordered": [["zh", "-inf"]]}}),
    ],
)
def test_a_value_of_the_shape_is_applied(store: SettingsStore, name: str, value: object) -> None:
    outcome = store.patch({name: value})
    assert (outcome.applied, outcome.rejected) == ({name: value}, [])
    assert outcome.current[name] == value


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("reasoning_budget", -2, " must be at least -1"),
        ("reasoning_budget", 2147483648, " must be at most 2147483647"),
        ("reasoning_budget", None, " wants an integer, got null"),
        ("reasoning_budget", 5.0, " wants an integer, got number 5.0"),
        ("loop_detection", [], " wants an object or null, got array"),
        ("loop_detection", {**LOOP, "min_count": -1}, ".min_count: is less than the minimum of 0"),
        ("loop_detection", {**LOOP, "min_count": 4.0}, ".min_count: is not an integer"),
        ("loop_detection", {**LOOP, "count": 4}, ": Additional properties"),
        ("loop_detection", {"min_count": 4}, ": 'max_pattern_size' is a required property"),
        ("lang_bias_config", "ja=-5", " wants an object or null, got string"),
        ("lang_bias_config", {"bias_set": {}}, ": bias_set must hold a list"),
        (
            "lang_bias_config",
            {**LANGUAGES, "policy": "Mild"},
            ": policy must be conservative or strict",
        ),
        ("lang_bias_config", {**LANGUAGES, "biases": {}}, " has the unknown key 'biases'"),
        (
            "lang_bias_config",
            {"bias_set": {"ordered": [["xx", 1.0]]}},
            ": 'xx' is no language code; known: ja, zh",
        ),
        (
            "lang_bias_config",
            {"bias_set": {"ordered": [["ja", 1.0], ["JA", 2.0]]}},
            ": the language ja is named twice",
        ),
        (
            "lang_bias_config",
            {"bias_set": {"ordered": [["ja"]]}},
            ": ordered must hold pairs",
        ),
    ],
)
def test_a_value_of_another_shape_is_refused(
    store: SettingsStore, name: str, value: object, reason: str
) -> None:
    before = store.current
    [rejected] = store.patch({name: value}).rejected
    assert rejected["reason"].removeprefix(name).startswith(reason)
    assert store.current is before


def test_a_language_bias_is_told_in_one_form(store: SettingsStore) -> None:
    """So that equal settings have equal fingerprints."""
    short = store.patch({"lang_bias_config": {"bias_set": {"ordered": [["JA", -5]]}}})
    assert short.applied == {"lang_bias_config": LANGUAGES}
    whole = new_store().patch({"lang_bias_config": LANGUAGES})
    assert short.fingerprint == whole.fingerprint


def test_what_is_published(store: SettingsStore) -> None:
    plain = store.current
    assert (plain.reasoning_budget, plain.loop, plain.language) == (-1, None, None)
    store.patch({"reasoning_budget": 5, "loop_detection": LOOP, "lang_bias_config": LANGUAGES})
    settings = store.current
    assert settings.reasoning_budget == 5
    assert settings.loop == LoopGuard(shortest=1, longest=20, count=4)
    assert settings.language == LanguageBias(bias=(("ja", -5.0),))
    store.patch({"loop_detection": None, "lang_bias_config": None})
    assert (store.current.loop, store.current.language) == (None, None)


def test_a_least_pattern_of_zero_counts_as_one(store: SettingsStore) -> None:
    store.patch({"loop_detection": {**LOOP, "min_pattern_size": 0}})
    assert store.current.loop == LoopGuard(shortest=1, longest=20, count=4)


@pytest.mark.parametrize("change", [{"max_pattern_size": 0}, {"min_count": 1}])
def test_a_guard_that_is_switched_off_still_overrides_the_family(
    store: SettingsStore, change: dict[str, int]
) -> None:
    store.patch({"loop_detection": {**LOOP, **change}})
    assert store.current.loop is not None
    assert not store.current.loop.is_on


def test_values_of_the_start() -> None:
    store = new_store(
        "live.reasoning.budget=7",
        "live.loop_detection={max_pattern_size: 3, min_pattern_size: 2, min_count: 5}",
        "live.lang_bias={bias_set: {ordered: [[ja, -5]]}}",
    )
    settings = store.current
    assert settings.reasoning_budget == 7
    assert settings.loop == LoopGuard(shortest=2, longest=3, count=5)
    assert settings.language == LanguageBias(bias=(("ja", -5.0),))
    assert store.describe()["current"]["lang_bias_config"] == LANGUAGES


FILE = """
policy: strict
bias:
  zh: "-inf"
  ja: -5.0
exceptions:
  include_numeric: true
"""


def test_a_bias_file_is_a_live_value(tmp_path: Path) -> None:
    file = tmp_path / "bias.yaml"
    file.write_text(FILE)
    value = read_bias_file(file)
    assert value["bias_set"]["ordered"] == [["zh", "-inf"], ["ja", -5.0]]
    assert value["policy"] == "Strict"
    assert value["exceptions"]["include_numeric"] is True
    assert new_store().patch({"lang_bias_config": value}).rejected == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("bias: {ja: -5}\nstrictness: 1\n", "unknown key 'strictness'", id="key"),
        pytest.param("bias: {ja: -5, ja: 1}\n", "ja is named twice", id="twin"),
        pytest.param("bias: {xx: -5}\n", "no language code", id="code"),
        pytest.param("bias: {ja: .nan}\n", "must be a number", id="nan"),
        pytest.param("bias: [ja", "cannot be used", id="not-yaml"),
        pytest.param("", "must be an object", id="empty"),
    ],
)
def test_a_bias_file_that_stops_the_start(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bias.yaml"
    file.write_text(text)
    with pytest.raises(StartupError, match=words) as caught:
        read_bias_file(file)
    assert str(file) in caught.value.message


def test_a_bias_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"none\.yaml cannot be used"):
        read_bias_file(tmp_path / "none.yaml")
