"""`draft=auto`: who drafts is found, and runs as if it had been named."""

import json
import logging
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlxcel.config.asked import Asked, Origin, Setting
from mlxcel.config.compose import compose
from mlxcel.config.paths import data_dir
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.provenance import sources
from mlxcel.config.settings import SettingsStore
from mlxcel.core.errors import StartupError
from mlxcel.graph import render
from mlxcel.graph.plan import make_plan
from mlxcel.graph.resolve import resolve
from mlxcel.graph.spec import Plan
from mlxcel.store.progress import silent


def checkpoint(folder: Path, *tensors: str, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps(dict.fromkeys(tensors or ("w",), entry)).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "plain", model_type="llama")


@pytest.fixture
def with_heads(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "heads", "w", "mtp.fc.weight", model_type="qwen3_5")


@pytest.fixture
def block_drafter(tmp_path: Path) -> Path:
    names = ["DFlashDraftModel"]
    return checkpoint(tmp_path / "block", model_type="qwen3", architectures=names)


def asked(model: Path | str, *words: str, values: tuple[Setting, ...] = ()) -> Asked:
    named = ("model=default", f"model.path={model}", "draft=auto")
    return Asked(overrides=(*named, *words), values=values)


def planned(what: Asked, *, offline_only: bool = False) -> Plan:
    return make_plan(compose(what), offline_only=offline_only, progress=silent)


def variable(key: str, value: object) -> Setting:
    return Setting(key=key, value=value, origin=Origin.ENVIRONMENT, name="VARIABLE")


def named(kind: str, **values: object) -> dict[str, Any]:
    """The section of a kind chosen by hand."""
    file = data_dir("conf") / "draft" / f"{kind}.yaml"
    return {**yaml.safe_load(file.read_text()), **values}


def shown(plan: Plan) -> list[str]:
    """The words of the drafter's line of `mlxcel graph`, which the other two forms have as well."""
    [line] = [line for line in render.text(plan).splitlines() if "─ drafter" in line]
    words = line.split()[1:-2]
    assert line.endswith("needs model")
    assert f'drafter_node["drafter: {words[2]}"]' in render.mermaid(plan)
    nodes = json.loads(render.as_json(plan, ()))["nodes"]
    assert nodes["drafter"]["options"]["path"] == plan.tree["draft"]["path"]
    assert nodes["chat"]["options"]["draft"]["kind"] == words[1]
    return words


def test_heads_of_the_model_are_found(with_heads: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mlxcel.graph.drafter")
    plan = planned(asked(with_heads))
    assert plan.tree["draft"] == named("mtp")
    assert shown(plan) == ["drafter", "mtp", "load_mtp", "heads", "of", "the", "model"]
    assert f"draft=auto: mtp: {with_heads} has heads for it" in caplog.text


def test_nobody_drafts_for_a_model_without_heads(
    plain: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mlxcel.graph.drafter")
    plan = planned(asked(plain, "draft.max_batch=3", "draft.adaptive=false"))
    assert plan.tree["draft"] == {"kind": "none"}
    assert "drafter" not in plan.nodes
    assert f"draft=auto: none: {plain} has no MTP heads" in caplog.text


def test_a_drafter_says_itself_what_it_is(
    plain: Path, block_drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(block_drafter.parent)
    plan = planned(asked(plain, "draft.path=./block"))
    assert plan.tree["draft"] == named("dflash", path=str(block_drafter))
    assert shown(plan) == ["drafter", "dflash", "load_dflash", "block"]


def test_an_ordinary_model_is_a_full_model(with_heads: Path, plain: Path) -> None:
    """As --draft-model means it elsewhere; heads in the target do not matter beside it."""
    plan = planned(asked(with_heads, f"draft.path={plain}"))
    assert plan.tree["draft"] == named("full_model", path=str(plain))
    assert shown(plan) == ["drafter", "full_model", "load_drafter", "plain"]


def test_what_is_set_beside_it_holds_for_what_is_found(with_heads: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("# @package _global_\ndraft:\n  max_batch: 3\n")
    by_flag = Setting(
        key="draft.max_draft",
        value=6,
        origin=Origin.COMMAND_LINE,
        name="--draft-block-size",
        kinds={"auto": "draft.block_size", "mtp": "draft.block_size"},
    )
    what = asked(
        with_heads, "draft.quantize=false", values=(variable("draft.adaptive", False), by_flag)
    )
    plan = planned(Asked(overrides=what.overrides, values=what.values, recipes=(str(recipe),)))
    changed = {"max_batch": 3, "quantize": False, "adaptive": False, "block_size": 6}
    assert plan.tree["draft"] == named("mtp", **changed)


def test_a_key_that_the_kind_lacks_is_refused_by_name(plain: Path, block_drafter: Path) -> None:
    words = (f"draft.path={block_drafter}", "draft.adaptive=false")
    with pytest.raises(ConfigErrors) as refused:
        planned(asked(plain, *words))
    [problem] = refused.value.problems
    assert problem.key == "draft.adaptive"
    assert problem.rule == "is no key of draft=dflash"
    assert "found dflash" in problem.hint
    assert problem.source == "command line: draft.adaptive=false"


def test_a_variable_that_the_kind_lacks_is_not(plain: Path, block_drafter: Path) -> None:
    word = f"draft.path={block_drafter}"
    plan = planned(asked(plain, word, values=(variable("draft.adaptive", False),)))
    assert plan.tree["draft"] == named("dflash", path=str(block_drafter))


def test_where_it_came_from_is_told_of_what_was_found(with_heads: Path) -> None:
    known = resolve(compose(asked(with_heads, "draft.quantize=false")), progress=silent).composed
    where = sources(known)
    assert where["draft.adaptive"].startswith("conf/draft/mtp.yaml:")
    assert where["draft.quantize"] == "command line: draft.quantize=false"
    assert known.choices["draft"] == "mtp"


def test_settings_show_what_was_found(plain: Path, block_drafter: Path) -> None:
    words = (f"draft.path={block_drafter}", "draft.block_size=8")
    current = SettingsStore.from_tree(planned(asked(plain, *words)).tree).describe()["current"]
    rows = ("draft_model_path", "num_draft_tokens", "draft_kind", "draft_block_size")
    assert [current[row] for row in rows] == [str(block_drafter), 7, "dflash", 8]


def test_what_is_not_on_this_machine_stays_as_it_was_named(plain: Path, tmp_path: Path) -> None:
    words = ("draft.path=owner/none", f"model.store_root={tmp_path}/store")
    plan = planned(asked(plain, *words), offline_only=True)
    assert plan.tree["draft"] == {"kind": "auto", "path": "owner/none"}
    assert any("owner/none (draft.path) is not on this machine" in w for w in plan.warnings)
    nameless = planned(asked("owner/none", words[1]), offline_only=True)
    assert nameless.tree["draft"] == {"kind": "auto", "path": None}
    assert not [w for w in nameless.warnings if "draft" in w]


def test_a_folder_that_is_not_there_names_the_key(plain: Path) -> None:
    with pytest.raises(StartupError, match=r"draft\.path: /none: there is no such folder"):
        planned(asked(plain, "draft.path=/none"))


def test_nobody_drafts_for_a_script() -> None:
    plan = planned(Asked(overrides=("model=echo", "draft=auto")))
    assert plan.tree["draft"] == {"kind": "none"}
    with pytest.raises(ConfigErrors, match="nobody to draft for"):
        planned(Asked(overrides=("model=echo", "draft=auto", "draft.path=d")))
