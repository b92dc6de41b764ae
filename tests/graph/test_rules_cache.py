"""Rules of the prompt cache, its files, and of KV modes."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.config.keys import read, write
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules import RULES, Rule, Settled
from mlxcel.graph.rules import cache as rules
from mlxcel.graph.rules import kv_modes as modes
from mlxcel.graph.spec import Clamp
from tests.graph.sound_tree import card_of, tree

MIB = 1 << 20
GUARDED = {"limits__request_memory_budget": 1 << 30}


def settled(rule: Rule, values: dict[str, Any], card: Card | None = None) -> dict[str, object]:
    """What a rule decides without news; anything else it finds fails the test."""
    found = list(rule(tree(**values), card))
    assert all(isinstance(item, Settled) for item in found), found
    return {item.key: item.used for item in found if isinstance(item, Settled)}


def planned(**values: Any) -> dict[str, Any]:
    """The tree after all rules that rewrite it."""
    made = tree(**values)
    for rule in RULES:
        for item in rule(made, None):
            if isinstance(item, Clamp | Settled):
                write(made, item.key, item.used)
    return made


@pytest.mark.parametrize("mebibytes", [0, -1, 512])
def test_an_explicit_capacity_in_bytes_wins(mebibytes: int) -> None:
    values = {"cache__prompt__ram_mib": mebibytes, "cache__prompt__capacity_bytes": 1000}
    (warning,) = rules.memory_of_prompt_cache(tree(**values), None)
    assert warning == (
        f"cache.prompt.ram_mib={mebibytes} has no effect: cache.prompt.capacity_bytes=1000 beats it"
    )


@pytest.mark.parametrize(
    ("rule", "values", "card", "key", "asked", "used"),
    [
        pytest.param(
            rules.memory_of_prompt_cache,
            {"cache__prompt__ram_mib": 0},
            None,
            "cache.prompt.enabled",
            True,
            False,
            id="no-memory-no-cache",
        ),
        pytest.param(
            rules.one_by_one_is_cold,
            {"scheduler__no_batch": True},
            None,
            "cache.prompt.enabled",
            True,
            False,
            id="no-batch",
        ),
        pytest.param(
            rules.guarded_snapshots,
            GUARDED,
            card_of(family="nemotron_h"),
            "cache.snapshot.capacity_bytes",
            None,
            0,
            id="memory-guard",
        ),
        pytest.param(
            modes.mode_of_family,
            {"cache__kv__mode": "turbo4"},
            card_of(),
            "cache.kv.mode",
            "turbo4",
            "fp16+turbo4",
            id="keys-that-bear-no-4-bits",
        ),
        *(
            pytest.param(
                modes.mode_of_family,
                {"cache__kv__mode": "int8"},
                card_of(family=family),
                "cache.kv.mode",
                "int8",
                "fp16",
                id=f"latent-{family}",
            )
            for family in sorted(modes.LATENT)
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


def test_what_is_part_of_the_prompt_cache_goes_with_it() -> None:
    values = {"cache__disk__path": "/var/kv", "cache__prefix_dir": "/var/prefix"}
    found = list(rules.stores_of_prompt_cache(tree(cache__prompt__enabled=False, **values), None))
    assert found == [
        Clamp(key="cache.disk.path", asked="/var/kv", used=None, reason=rules.OFF),
        Clamp(key="cache.prefix_dir", asked="/var/prefix", used=None, reason=rules.OFF),
    ]


def test_conversations_without_a_prompt_cache_are_a_warning() -> None:
    """Not a problem: their ids and headers work, and say `disabled`."""
    values = {"cache__prompt__enabled": False, "cache__conversations__enabled": True}
    warning = list(rules.stores_of_prompt_cache(tree(**values), None))[-1]
    assert isinstance(warning, str)
    assert "keeps no KV" in warning
    assert "cache.prompt.enabled=true" in warning


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"scheduler__no_batch": True}, id="one-by-one"),
        pytest.param({"cache__prompt__ram_mib": 0}, id="no-memory"),
        pytest.param({"cache__prompt__enabled": False}, id="switched-off"),
    ],
)
def test_whatever_switches_the_prompt_cache_off_takes_its_files_along(
    values: dict[str, Any],
) -> None:
    """So the rules stand in the right order."""
    made = planned(cache__disk__path="auto", **values)
    assert read(made, "cache.prompt.enabled") is False
    assert read(made, "cache.disk.path") is None


@pytest.mark.parametrize(
    ("values", "decided"),
    [
        pytest.param(
            {"cache__disk__path": "auto"},
            {"cache.disk.path": "/var/mlxcel/prompt-cache"},
            id="below-the-cache-folder",
        ),
        pytest.param(
            {"cache__disk__path": "~/kv"}, {"cache.disk.path": "HOME/kv"}, id="home-of-the-user"
        ),
        pytest.param({"cache__disk__path": "/var/kv"}, {}, id="whole-already"),
        pytest.param(
            {"cache__prefix_dir": "./p", "cache__slot_save_path": "s"},
            {"cache.prefix_dir": "HERE/p", "cache.slot_save_path": "HERE/s"},
            id="where-the-server-was-started",
        ),
        pytest.param(
            {"cache__conversations__enabled": True},
            {"cache.conversations.disk_dir": "/var/mlxcel/conversations"},
            id="saved-conversations",
        ),
        pytest.param(
            {"cache__conversations": {"enabled": True, "disk_dir": "~/c"}},
            {"cache.conversations.disk_dir": "HOME/c"},
            id="saved-conversations-elsewhere",
        ),
    ],
)
def test_paths_are_whole(
    values: dict[str, Any],
    decided: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    places = {"HOME": str(tmp_path / "home"), "HERE": str(tmp_path)}
    for key, path in decided.items():
        first, _, rest = path.partition("/")
        decided[key] = f"{places.get(first, '')}/{rest}"
    assert settled(rules.files_of_caches, values) == decided


@pytest.mark.parametrize(
    ("keys", "values", "mode"),
    [
        ("fp16", "fp16", "fp16"),
        ("f16", "f16", "fp16"),
        ("int8", "int8", "int8"),
        ("fp16", "turbo4", "fp16+turbo4"),
        ("f16", "turbo4-asym", "fp16+turbo4"),
        ("turbo4", "turbo4", "turbo4"),
        ("fp16", "turbo4-delegated", "turbo4-delegated"),
        ("fp16", "turbo3", "fp16+turbo3"),
        ("fp16", "turbo3-asym", "fp16+turbo3"),
        (None, "turbo4", "fp16+turbo4"),
        ("fp16", None, "fp16"),
    ],
)
def test_types_of_keys_and_values_make_a_mode(
    keys: str | None, values: str | None, mode: str
) -> None:
    """Every row of the type table of engine-cache.md, section 10."""
    asked = {"cache__kv__type_k": keys, "cache__kv__type_v": values}
    assert settled(modes.types_make_mode, asked) == {
        "cache.kv.type_k": None,
        "cache.kv.type_v": None,
        "cache.kv.mode": mode,
    }


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("f16", "fp16"),
        ("turbo4-asym", "fp16+turbo4"),
        ("turbo4-sym", "turbo4"),
        ("fp16+turbo4-delegated", "turbo4-delegated"),
        ("turbo3-asym", "fp16+turbo3"),
        ("turbo3", "fp16+turbo3"),
    ],
)
def test_another_name_of_a_mode(name: str, mode: str) -> None:
    assert settled(modes.types_make_mode, {"cache__kv__mode": name}) == {"cache.kv.mode": mode}


@pytest.mark.parametrize(
    "mode", ["fp16", "int8", "fp16+turbo4", "turbo4", "turbo4-delegated", "fp16+turbo3"]
)
def test_a_mode_by_its_own_name_stays(mode: str) -> None:
    assert settled(modes.types_make_mode, {"cache__kv__mode": mode}) == {}


def test_split_types_beat_the_mode_with_a_warning() -> None:
    values = {"mode": "int8", "type_k": "fp16", "type_v": "turbo3"}
    warning, *_, last = modes.types_make_mode(tree(cache__kv=values), None)
    assert warning == (
        "cache.kv.mode=int8 has no effect: cache.kv.type_k and cache.kv.type_v beat it"
    )
    assert last == Settled(key="cache.kv.mode", used="fp16+turbo3")


def test_split_types_that_say_the_same_as_the_mode_are_no_news() -> None:
    values = {"mode": "turbo4-asym", "type_k": "fp16", "type_v": "turbo4"}
    assert settled(modes.types_make_mode, {"cache__kv": values})["cache.kv.mode"] == "fp16+turbo4"


REFUSED_TYPES = [
    *(pytest.param(t, t, "type_k", "llama.cpp", id=t) for t in sorted(modes.OF_LLAMA)),
    pytest.param("fp16", "q8_0", "type_v", "llama.cpp", id="values-of-llama"),
    pytest.param("int4", "fp16", "type_k", "is none of f16, fp16, int8, turbo4", id="unknown"),
    pytest.param("turbo3", "turbo3", "type_k", "is none of", id="3-bit-keys"),
    pytest.param("int8", "fp16", "type_v", "does not go with keys of int8", id="int8-fp16"),
    pytest.param("turbo4", "int8", "type_v", "does not go with keys of turbo4", id="turbo4-int8"),
    pytest.param("int8", None, "type_k", "does not go with values of fp16", id="int8-keys-alone"),
    pytest.param(None, "int8", "type_v", "does not go with keys of fp16", id="int8-values-alone"),
    pytest.param("turbo4", "turbo3", "type_v", "does not go with keys of turbo4", id="mixed"),
    pytest.param(
        "turbo4", "turbo4-asym", "type_v", "does not go with keys of turbo4", id="asym-is-not-sym"
    ),
]


@pytest.mark.parametrize(("keys", "values", "key", "words"), REFUSED_TYPES)
def test_another_pair_is_refused_with_those_that_work(
    keys: str | None, values: str | None, key: str, words: str
) -> None:
    asked = {"cache__kv__type_k": keys, "cache__kv__type_v": values}
    (problem,) = modes.types_make_mode(tree(**asked), None)
    assert isinstance(problem, Problem)
    assert problem.key == f"cache.kv.{key}"
    assert words in problem.rule
    assert "fp16/fp16, int8/int8, fp16/turbo4" in problem.hint


@pytest.mark.parametrize(
    ("rule", "values", "card", "key", "words"),
    [
        pytest.param(
            rules.kv_stays_in_place,
            {"cache__prompt__reuse": 256},
            None,
            "cache.prompt.reuse",
            "never moved",
            id="cache-reuse",
        ),
        pytest.param(
            modes.one_quantisation,
            {"cache__kv__bits": 8, "cache__kv__mode": "int8"},
            None,
            "cache.kv.bits",
            "cannot be combined with cache.kv.mode=int8",
            id="quantised-twice",
        ),
        pytest.param(
            modes.one_quantisation,
            {"cache__kv__bits": 8, "cache__kv__scheme": "turboquant"},
            None,
            "cache.kv.bits",
            "turboquant",
            id="turboquant-of-8-bits",
        ),
        pytest.param(
            modes.mode_of_family,
            {"cache__kv__mode": "int8"},
            card_of(family="muse_glimmer"),
            "cache.kv.mode",
            "muse_glimmer",
            id="muse-glimmer",
        ),
    ],
)
def test_conflict_is_a_problem(
    rule: Rule, values: dict[str, Any], card: Card | None, key: str, words: str
) -> None:
    (problem,) = rule(tree(**values), card)
    assert isinstance(problem, Problem)
    assert problem.key == key
    assert words in problem.rule
    assert problem.hint


@pytest.mark.parametrize(
    ("rule", "values", "card"),
    [
        pytest.param(rules.kv_stays_in_place, {}, None, id="no-reuse"),
        *(
            pytest.param(
                rules.memory_of_prompt_cache,
                {"cache__prompt__ram_mib": size},
                None,
                id=f"{size}-mib",
            )
            for size in (None, -1, 512)
        ),
        pytest.param(
            rules.memory_of_prompt_cache,
            {"cache__prompt__ram_mib": 1, "cache__prompt__capacity_bytes": MIB},
            None,
            id="both-agree",
        ),
        pytest.param(
            rules.memory_of_prompt_cache,
            {"cache__prompt__ram_mib": 0, "cache__prompt__enabled": False},
            None,
            id="off-twice",
        ),
        pytest.param(rules.one_by_one_is_cold, {}, None, id="batch"),
        pytest.param(rules.stores_of_prompt_cache, {}, None, id="prompt-cache"),
        pytest.param(
            rules.one_by_one_is_cold,
            {"scheduler__no_batch": True, "cache__prompt__enabled": False},
            None,
            id="off-already",
        ),
        pytest.param(rules.guarded_snapshots, GUARDED, card_of(), id="another-family"),
        pytest.param(rules.guarded_snapshots, {}, card_of(family="nemotron_h"), id="no-budget"),
        pytest.param(rules.guarded_snapshots, GUARDED, None, id="model-not-looked-at"),
        pytest.param(
            rules.guarded_snapshots,
            {**GUARDED, "cache__snapshot__capacity_bytes": 0},
            card_of(family="nemotron_h"),
            id="no-snapshots-anyhow",
        ),
        pytest.param(modes.one_quantisation, {"cache__kv__bits": 8}, None, id="8-bits"),
        pytest.param(
            modes.one_quantisation,
            {"cache__kv__bits": 4, "cache__kv__scheme": "turboquant"},
            None,
            id="turboquant",
        ),
        pytest.param(modes.one_quantisation, {"cache__kv__mode": "int8"}, None, id="a-mode-alone"),
        pytest.param(modes.mode_of_family, {}, card_of(family="muse_glimmer"), id="plain"),
        pytest.param(modes.mode_of_family, {"cache__kv__mode": "int8"}, card_of(), id="int8"),
        pytest.param(
            modes.mode_of_family, {"cache__kv__mode": "turbo4"}, None, id="family-not-known"
        ),
        *(
            pytest.param(
                modes.mode_of_family,
                {"cache__kv__mode": "turbo4"},
                card_of(family=family),
                id=f"keys-bear-4-bits-{family}",
            )
            for family in sorted(modes.SYMMETRIC)
        ),
    ],
)
def test_sound_values_pass(rule: Rule, values: dict[str, Any], card: Card | None) -> None:
    assert list(rule(tree(**values), card)) == []
