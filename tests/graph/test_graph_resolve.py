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
from mlxcel.graph.compile import compile_plan
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


@pytest.mark.parametrize(
    ("words", "own", "kwargs"),
    [
        pytest.param(("<think>", "</think>"), "{}", {"enable_thinking": True}, id="thinks"),
        pytest.param(("<|channel>", "<channel|>"), "{}", {"enable_thinking": True}, id="gemma"),
        pytest.param(("<think>",), "{}", {}, id="half-a-pair"),
        pytest.param((), "{}", {}, id="does-not"),
        pytest.param(
            ("<think>", "</think>"),
            "{enable_thinking: false, a: 1}",
            {"enable_thinking": False, "a": 1},
            id="the-operator-wins",
        ),
    ],
)
def test_a_model_that_thinks_is_told_so_by_a_setting(
    folder: Path, words: tuple[str, ...], own: str, kwargs: dict[str, Any]
) -> None:
    added = [{"id": token, "content": word} for token, word in enumerate(words)]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    kwargs_of = f"live.chat_template.kwargs={own}"
    result = resolved("model=default", f"model.path={folder}", kwargs_of)
    assert result.tree["live"]["chat_template"]["kwargs"] == kwargs


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


def test_the_cache_folder_is_told_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    default, own = resolved("model=echo"), resolved("model=echo", "model.cache_dir='~/ours'")
    assert default.tree["model"]["cache_dir"] == str(tmp_path / ".cache" / "mlxcel")
    assert own.tree["model"]["cache_dir"] == str(tmp_path / "ours")


@pytest.fixture
def bias_file(tmp_path: Path) -> str:
    file = tmp_path / "bias.yaml"
    file.write_text("policy: strict\nbias: {ja: -5, zh: 1}\nexceptions: {include_numeric: true}\n")
    return f"generation.lang_bias.file={file}"


def test_a_bias_file_sets_the_live_bias(bias_file: str) -> None:
    bias = resolved("model=echo", bias_file).tree["live"]["lang_bias"]
    assert bias["bias_set"]["ordered"] == [["ja", -5.0], ["zh", 1.0]]
    assert bias["policy"] == "Strict"


def test_what_is_set_by_itself_beats_the_bias_file(bias_file: str) -> None:
    bias = resolved(
        "model=echo",
        bias_file,
        "live.lang_bias={bias_set: {ordered: [[ko, 2.0]]}, exceptions: {include_special: true}}",
    ).tree["live"]["lang_bias"]
    assert bias["bias_set"]["ordered"] == [["ko", 2.0]]
    assert bias["policy"] == "Strict"
    assert bias["exceptions"]["include_numeric"] is True
    assert bias["exceptions"]["include_special"] is True


def test_a_bias_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"none\.yaml cannot be used"):
        resolved("model=echo", f"generation.lang_bias.file={tmp_path}/none.yaml")


def test_a_plan_settles_what_the_engine_is_told() -> None:
    words = ("model=echo", "scheduler=serial", "cache.kv_budget=none", "live.lang_bias={}")
    composed = compose(Asked(overrides=words))
    plan = make_plan(composed, offline_only=True, progress=silent)
    assert plan.tree["scheduler"]["max_batch_size"] == 1
    assert plan.tree["cache"]["kv_budget"] == 0
    assert plan.tree["live"]["lang_bias"] is None
    assert any("names no language" in warning for warning in plan.warnings)
    current = SettingsStore.from_tree(plan.tree).describe()["current"]
    assert (current["max_batch_size"], current["no_batch"]) == (1, True)
    assert current["kv_cache_budget"] == "none"


def test_nodes_take_what_they_need_of_other_sections() -> None:
    composed = compose(Asked(overrides=("model=smollm2",)))
    nodes = compile_plan(composed.tree, None, composed.choices, dict).nodes
    chat, text, server, model = (nodes[n].options for n in ("chat", "text", "server", "model"))
    tree = composed.tree
    assert chat["cache"]["kv_watermark"] == tree["cache"]["kv_watermark"]
    assert chat["scheduler"]["preemption"] == tree["scheduler"]["preemption"]
    assert chat["request_memory_budget"] is None
    assert chat["lang_bias_counters"] is False
    assert text["reasoning"] == tree["generation"]["reasoning"]
    assert (text["skip_chat_parsing"], text["prefill_assistant"]) == (False, True)
    assert "cache_dir" in text
    assert server["sampling"] == tree["generation"]["sampling"]
    assert server["reasoning_alias"] == "reasoning"
    assert model["lora"] == {"adapters": [], "init_without_apply": False, "fuse": False}
    assert model["batch"] == 4
