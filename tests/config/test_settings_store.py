"""The live settings: what a patch does and does not do."""

import json
from typing import Any

import pytest

from mlxcel.config.live import frozen, laid
from mlxcel.config.settings import SettingsStore
from mlxcel.core.errors import PatchRefused, PreconditionFailed, StartupError
from tests.config.live_store import new_store, tree


@pytest.fixture
def store() -> SettingsStore:
    return new_store()


def reasons(store: SettingsStore, values: dict[str, object]) -> dict[str, str]:
    return {entry["name"]: entry["reason"] for entry in store.patch(values).rejected}


def test_the_request_of_the_contract(store: SettingsStore) -> None:
    before = store.describe()
    outcome = store.patch(
        {
            "default_seed": 7,
            "default_temperature": 0.25,
            "default_top_p": "wide",
            "mystery_knob": True,
            "api_prefix": "none",
            "timeout_seconds": 0,
        }
    )
    assert outcome.applied == {"default_seed": 7, "default_temperature": 0.25}
    assert [entry["name"] for entry in outcome.rejected] == [
        "default_top_p",
        "mystery_knob",
        "api_prefix",
        "timeout_seconds",
    ]
    words = [entry["reason"] for entry in outcome.rejected]
    assert words[0] == "default_top_p wants a number, got string"
    assert words[1] == "unknown setting"
    assert words[2].startswith("read-only: ")
    assert words[2].endswith("restart required")
    assert words[3] == "timeout_seconds must be above zero"
    after = store.describe()
    assert outcome.current == after["current"]
    assert outcome.fingerprint == after["fingerprint"] != before["fingerprint"]
    changed = {n for n in after["current"] if after["current"][n] != before["current"][n]}
    assert changed == {"default_seed", "default_temperature"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout_seconds", 1),
        ("default_temperature", 0),
        ("default_temperature", 2.5),
        ("default_top_p", 1),
        ("default_top_p", 1e-9),
        ("default_top_k", 0),
        ("default_top_k", 2147483647),
        ("default_min_p", 0),
        ("default_min_p", 1),
        ("default_repetition_penalty", -1.5),
        ("default_repetition_penalty", 1000000),
        ("default_repetition_context_size", 0),
        ("default_repetition_context_size", 1 << 20),
        ("default_frequency_penalty", -2),
        ("default_presence_penalty", 2.5),
        ("default_dry_multiplier", 0),
        ("default_dry_multiplier", 0.8),
        ("default_dry_base", 1),
        ("default_dry_allowed_length", 0),
        ("default_dry_penalty_last_n", 0),
        ("default_dry_sequence_breakers", []),
        ("default_dry_sequence_breakers", ["\n", "x" * 40, ""]),
        ("default_max_tokens", 1),
        ("default_max_tokens", 1 << 40),
        ("default_seed", 0),
        ("default_seed", None),
        ("chat_template_kwargs", {}),
        ("chat_template_kwargs", {"a.b": [1, None, {"c": "$x {y}"}], "": False}),
    ],
)
def test_a_value_within_its_bounds_is_applied(store: SettingsStore, name: str, value: Any) -> None:
    outcome = store.patch({name: value})
    assert (outcome.applied, outcome.rejected) == ({name: value}, [])
    assert outcome.current[name] == value


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("timeout_seconds", 0, "must be above zero"),
        ("timeout_seconds", None, "wants an integer, got null"),
        ("timeout_seconds", "7", "wants an integer, got string"),
        ("default_temperature", -0.1, "must be at least 0"),
        ("default_temperature", True, "wants a number, got boolean"),
        ("default_temperature", float("nan"), "must be finite"),
        ("default_temperature", float("inf"), "must be finite"),
        ("default_temperature", 10**400, "must be finite"),
        ("default_top_p", 0, "must be above zero"),
        ("default_top_p", 1.01, "must be at most 1"),
        ("default_top_k", -1, "must be at least 0"),
        ("default_top_k", 2147483648, "must be at most 2147483647"),
        ("default_top_k", 7.0, "wants an integer, got number 7.0"),
        ("default_min_p", -0.01, "must be at least 0"),
        ("default_min_p", 1.01, "must be at most 1"),
        ("default_repetition_penalty", None, "wants a number, got null"),
        ("default_repetition_penalty", float("inf"), "must be finite"),
        ("default_repetition_context_size", -1, "must be at least 0"),
        ("default_repetition_context_size", 64.0, "wants an integer, got number 64.0"),
        ("default_frequency_penalty", "1", "wants a number, got string"),
        ("default_presence_penalty", True, "wants a number, got boolean"),
        ("default_dry_multiplier", -0.1, "must be at least 0"),
        ("default_dry_base", 0.99, "must be at least 1"),
        ("default_dry_allowed_length", -1, "must be at least 0"),
        ("default_dry_penalty_last_n", -1, "must be at least 0"),
        ("default_dry_sequence_breakers", "a", "wants a list, got string"),
        ("default_dry_sequence_breakers", None, "wants a list, got null"),
        ("default_dry_sequence_breakers", [1], "[0]: is not a string"),
        ("default_dry_sequence_breakers", ["x" * 41], "[0]: is longer than 40 characters"),
        ("default_dry_sequence_breakers", ["${a}"], "must not contain ${"),
        ("default_max_tokens", 0, "must be above zero"),
        ("default_max_tokens", True, "wants an integer, got boolean"),
        ("default_seed", -1, "must be at least 0"),
        ("default_seed", float(2**70), "must be at most 18446744073709551615"),
        ("default_seed", -float(2**70), "must be at least 0"),
        ("default_seed", [], "wants an integer or null, got array"),
        ("chat_template_kwargs", None, "wants an object, got null"),
        ("chat_template_kwargs", {"a": ["${oc.env:HOME}"]}, "must not contain ${"),
        ("chat_template_kwargs", {"a": "???"}, "must not contain ${"),
        ("chat_template_kwargs", {"a": [float("inf")]}, "must be finite"),
    ],
)
def test_a_value_outside_is_refused(
    store: SettingsStore, name: str, value: object, reason: str
) -> None:
    before = store.current
    said = reasons(store, {name: value})[name]
    assert said.removeprefix(name).lstrip(" ").startswith(reason)
    assert store.current is before


def test_the_penalties_of_the_snapshot_are_those_of_the_settings(store: SettingsStore) -> None:
    store.patch(
        {
            "default_repetition_penalty": 1.2,
            "default_repetition_context_size": 9,
            "default_frequency_penalty": 0.3,
            "default_presence_penalty": 0.4,
            "default_dry_multiplier": 0.8,
            "default_dry_base": 2,
            "default_dry_allowed_length": 3,
            "default_dry_penalty_last_n": 10,
            "default_dry_sequence_breakers": [".", "\n"],
        }
    )
    sampling = store.current.sampling
    assert (sampling.repetition_penalty, sampling.repetition_context_size) == (1.2, 9)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.3, 0.4)
    assert (sampling.dry_multiplier, sampling.dry_base) == (0.8, 2.0)
    assert (sampling.dry_allowed_length, sampling.dry_penalty_last_n) == (3, 10)
    assert sampling.dry_sequence_breakers == (".", "\n")


def test_the_penalties_are_off_unless_configured(store: SettingsStore) -> None:
    sampling = store.current.sampling
    assert (sampling.repetition_penalty, sampling.repetition_context_size) == (1.0, 64)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.0, 0.0)
    assert (sampling.dry_multiplier, sampling.dry_base) == (0.0, 1.75)
    assert (sampling.dry_allowed_length, sampling.dry_penalty_last_n) == (2, 64)
    assert sampling.dry_sequence_breakers == ("\n", ":", '"', "*")


def test_a_bottomless_object_is_refused(store: SettingsStore) -> None:
    value: dict[str, Any] = {}
    for _ in range(500):
        value = {"a": value}
    assert "deeper" in reasons(store, {"chat_template_kwargs": value})["chat_template_kwargs"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param({"a": "x" * 65536}, "is larger than 65536 bytes as JSON", id="text"),
        pytest.param({"a": "é" * 32768}, "is larger than 65536 bytes as JSON", id="not-ascii"),
        pytest.param(
            {str(n): 1 for n in range(50_000)}, "holds more than 1000 values", id="many-keys"
        ),
        pytest.param({"a": [[0]] * 500}, "holds more than 1000 values", id="nested"),
    ],
)
def test_a_huge_object_is_refused(store: SettingsStore, value: dict[str, Any], reason: str) -> None:
    refused = reasons(store, {"chat_template_kwargs": value})
    assert refused == {"chat_template_kwargs": f"chat_template_kwargs {reason}"}
    assert store.current.version == 0


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"a": "x" * 65528}, id="bytes"),
        pytest.param({str(n): n for n in range(1000)}, id="values"),
    ],
)
def test_an_object_at_the_bound_is_taken(store: SettingsStore, value: dict[str, Any]) -> None:
    assert reasons(store, {"chat_template_kwargs": value}) == {}
    assert store.current.template_kwargs == value


def test_max_tokens_fit_the_context_of_a_slot() -> None:
    store = new_store("limits.ctx_size=4096", "scheduler.parallel=4")
    assert store.patch({"default_max_tokens": 1024}).rejected == []
    refused = reasons(store, {"default_max_tokens": 1025})
    assert refused == {"default_max_tokens": "default_max_tokens must be at most 1024"}


def test_a_startup_value_is_held_to_the_rule_of_a_patch() -> None:
    with pytest.raises(StartupError, match="max_tokens must be at most 256"):
        new_store("limits.ctx_size=1024", "scheduler.parallel=4")


def test_the_environment_is_never_read_back(
    store: SettingsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hunter2")
    body = store.patch({"chat_template_kwargs": {"x": "${oc.env:SECRET_OF_THE_HOST}"}})
    assert body.applied == {}
    assert "hunter2" not in json.dumps([body.current, body.rejected])


def test_an_interpolation_in_the_configuration_stops_the_start() -> None:
    plain = tree()
    live = {**plain["live"], "chat_template": {"kwargs": {"a": "${x}"}}}
    with pytest.raises(StartupError, match=r"live\.chat_template\.kwargs"):
        SettingsStore.from_tree({**plain, "live": live})


def test_template_kwargs_are_replaced_whole(store: SettingsStore) -> None:
    store.patch({"chat_template_kwargs": {"a": {"b": 1}}})
    store.patch({"chat_template_kwargs": {"a": {"c": 2}}})
    assert dict(store.current.template_kwargs) == {"a": {"c": 2}}


def test_replace_starts_from_startup_also_for_refused_names(store: SettingsStore) -> None:
    start = store.describe()
    store.patch({"default_top_k": 9, "default_min_p": 0.9, "default_seed": 1})
    outcome = store.patch({"default_top_k": 20, "default_min_p": 7}, op="replace")
    assert outcome.applied == {"default_top_k": 20}
    assert outcome.current == {**start["current"], "default_top_k": 20}
    assert store.patch({}, op="replace").fingerprint == start["fingerprint"]


def test_an_empty_patch_changes_nothing(store: SettingsStore) -> None:
    before = store.current
    outcome = store.patch({})
    assert (outcome.applied, outcome.rejected) == ({}, [])
    assert store.current is before
    assert store.history() == []


def test_the_same_value_again_is_no_change(store: SettingsStore) -> None:
    outcome = store.patch({"default_temperature": 0.8})
    assert outcome.applied == {"default_temperature": 0.8}
    assert (store.current.version, store.history()) == (0, [])


def test_true_and_one_are_different_values(store: SettingsStore) -> None:
    store.patch({"chat_template_kwargs": {"a": 1}})
    store.patch({"chat_template_kwargs": {"a": True}})
    assert store.current.template_kwargs["a"] is True
    assert store.current.version == 2


def test_an_integer_for_a_number_is_the_same_number(store: SettingsStore) -> None:
    one = store.patch({"default_temperature": 1}).fingerprint
    assert store.patch({"default_temperature": 1.0}).fingerprint == one


def test_the_fingerprint_does_not_depend_on_the_order() -> None:
    changes: list[dict[str, object]] = [
        {"default_top_k": 1},
        {"chat_template_kwargs": {"a": 1, "b": 2}},
    ]
    ends = []
    for order in (changes, changes[::-1]):
        store = new_store()
        for change in order:
            store.patch(change)
        ends.append(store.current.fingerprint)
    assert ends[0] == ends[1]
    assert len(ends[0]) == 64


def test_a_snapshot_never_changes(store: SettingsStore) -> None:
    snapshot = store.current
    kwargs = {"a": [1]}
    store.patch({"chat_template_kwargs": kwargs, "default_top_k": 3})
    kwargs["a"].append(2)
    assert snapshot.sampling.top_k == 40
    assert store.current.template_kwargs["a"] == [1]
    with pytest.raises(TypeError):
        store.current.template_kwargs["b"] = 1  # type: ignore[index]


def test_a_caller_cannot_change_the_store_through_an_answer(store: SettingsStore) -> None:
    outcome = store.patch({"chat_template_kwargs": {"a": [1]}})
    for body in (outcome.applied, outcome.current, store.describe()["current"]):
        body["chat_template_kwargs"]["a"].append(2)
    store.history()[0]["changes"].clear()
    assert store.describe()["current"]["chat_template_kwargs"] == {"a": [1]}
    assert store.history()[0]["changes"]


def test_the_live_tree_is_copied_and_read_only() -> None:
    from omegaconf import ReadonlyConfigError

    before = frozen({"live": {"top_k": 2}})
    after = laid(before, {"live.top_k": 3})
    assert (before.live.top_k, after.live.top_k) == (2, 3)
    for one in (before, after):
        with pytest.raises(ReadonlyConfigError):
            one.live.top_k = 4


def test_atomic_is_all_or_nothing(store: SettingsStore) -> None:
    before = store.current
    with pytest.raises(PatchRefused) as caught:
        store.patch({"default_top_k": 3, "default_top_p": 3, "x": 1}, atomic=True)
    assert store.current is before
    assert caught.value.status == 409
    assert [entry["name"] for entry in caught.value.rejected] == ["default_top_p", "x"]
    assert store.patch({"default_top_k": 3}, atomic=True).applied == {"default_top_k": 3}


@pytest.mark.parametrize("tag", ["{}", '"{}"', 'W/"{}"', "*", '"other", "{}"'])
def test_if_match_lets_the_current_fingerprint_through(store: SettingsStore, tag: str) -> None:
    tag = tag.format(store.current.fingerprint)
    assert store.patch({"default_top_k": 3}, if_match=tag).applied


def test_if_match_guards_against_a_lost_update(store: SettingsStore) -> None:
    read = store.current.fingerprint
    store.patch({"default_top_k": 3})
    for change in (
        lambda: store.patch({"default_top_k": 4}, if_match=read),
        lambda: store.revert(if_match=read),
    ):
        with pytest.raises(PreconditionFailed) as caught:
            change()
        assert caught.value.status == 412
    assert store.current.sampling.top_k == 3
