"""Trees composed from conf/, with models that are folders of a few bytes."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from mlxcel.config.asked import Asked
from mlxcel.config.compose import compose
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.settings import SettingsStore
from mlxcel.core.errors import StartupError
from mlxcel.graph.plan import make_plan
from mlxcel.graph.resolve import Resolved, resolve, single_row_families
from mlxcel.store.progress import silent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A llama checkpoint with one empty tensor."""
    made = tmp_path / "tiny"
    made.mkdir()
    config = {"model_type": "llama", "vocab_size": 264, "max_position_embeddings": 2048}
    (made / "config.json").write_text(json.dumps(config))
    header = b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    (made / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return made


def resolved(*words: str, offline_only: bool = False) -> Resolved:
    composed = compose(Asked(overrides=words))
    return resolve(composed, offline_only=offline_only, progress=silent)


def sampling(result: Resolved) -> dict[str, Any]:
    found: dict[str, Any] = result.tree["live"]["sampling"]
    return found


def test_path_becomes_the_folder_and_the_card_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    result = resolved("model=default", "model.path=tiny")
    assert result.tree["model"]["path"] == str(folder)
    assert result.tree["model"]["name"] == "tiny"
    assert result.card is not None
    assert (result.card.name, result.card.train_window) == ("tiny", 2048)


def test_echo_needs_no_disk(tmp_path: Path) -> None:
    result = resolved("model=echo", f"model.store_root={tmp_path}/none", "engine.window=1024")
    assert result.card is not None
    assert (result.card.name, result.card.family) == ("echo", "echo")
    assert result.card.train_window == 1024


def test_no_model_is_left_to_the_plan_to_refuse() -> None:
    assert resolved("model=default").card is None


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("model=smollm2",), id="wheel"),
        pytest.param(("model=default", "model.path=owner/none"), id="hub"),
    ],
)
def test_looking_only_leaves_out_the_download(tmp_path: Path, words: tuple[str, ...]) -> None:
    root = f"model.store_root={tmp_path}/store"
    assert resolved(*words, root, offline_only=True).card is None
    assert not (tmp_path / "store").exists()


def test_folder_that_is_not_there_is_an_error() -> None:
    with pytest.raises(StartupError, match="/none: there is no such folder"):
        resolved("model=default", "model.path=/none")


def test_sampling_of_the_checkpoint_fills_what_nobody_set(folder: Path) -> None:
    said = {"temperature": 0.6, "top_k": 20, "min_p": 0.3}
    (folder / "generation_config.json").write_text(json.dumps(said))
    result = resolved("model=default", f"model.path={folder}", "live.sampling.temperature=0.1")
    found = sampling(result)
    assert (found["temperature"], found["top_k"]) == (0.1, 20)
    assert found["min_p"] != 0.3


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"temperature": -1}, id="negative"),
        pytest.param({"top_p": 1.5}, id="above-one"),
        pytest.param({"top_k": 2.5}, id="broken-count"),
        pytest.param({"temperature": float("nan")}, id="nan"),
    ],
)
def test_sampling_of_the_checkpoint_keeps_our_bounds(folder: Path, said: dict[str, float]) -> None:
    words = ("model=default", f"model.path={folder}")
    before = sampling(resolved(*words))
    (folder / "generation_config.json").write_text(json.dumps(said))
    assert sampling(resolved(*words)) == before


def test_families_that_cannot_batch_are_listed_with_a_reason() -> None:
    families = single_row_families()
    assert {"nemotron_h", "jamba", "mamba", "mamba2", "afmoe"} <= set(families)
    assert all(families.values())


def test_plan_of_the_family_table_runs_one_row(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "jamba"}))
    words = ("model=default", f"model.path={folder}", "limits.ctx_size=1000")
    plan = make_plan(compose(Asked(overrides=words)), progress=silent)
    clamps = {clamp.key: (clamp.asked, clamp.used) for clamp in plan.clamps}
    assert clamps == {"scheduler.parallel": (4, 1)}
    assert plan.nodes["chat"].options["scheduler"]["parallel"] == 1
    assert plan.nodes["chat"].options["ctx_size"] == 1000
    assert plan.tree["scheduler"]["parallel"] == 1


def test_plan_tells_the_worker_what_the_card_says(folder: Path) -> None:
    words = ("model=default", f"model.path={folder}")
    plan = make_plan(compose(Asked(overrides=words)), progress=silent)
    assert plan.nodes["model"].options["train_window"] == 2048
    assert plan.nodes["chat"].options["max_queue_depth"] == 32


def test_settings_show_what_the_rules_have_made(folder: Path) -> None:
    words = ("model=default", f"model.path={folder}", "scheduler.parallel=-1",
             "limits.ctx_size=4096", "live.sampling.max_tokens=9999")  # fmt: skip
    plan = make_plan(compose(Asked(overrides=words)), progress=silent)
    shown = SettingsStore.from_tree(plan.tree).describe()["current"]
    assert (shown["n_parallel"], shown["context_size"]) == (4, 1024)
    assert shown["default_max_tokens"] == 1024
    assert shown["enable_settings_endpoint"] is True


def test_wrong_values_are_told_before_the_model_is_looked_for() -> None:
    words = ("model=default", "model.path=/none", "server.api_prefix=x", "engine=echo")
    with pytest.raises(ConfigErrors) as refused:
        make_plan(compose(Asked(overrides=words)), progress=silent)
    assert {"server.api_prefix", "engine.kind"} <= {p.key for p in refused.value.problems}
