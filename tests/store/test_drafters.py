"""Who a drafter is, by its config.json, and which models bring one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.drafters import MTP_HEADS
from mlxcel.store.drafters import brings_mtp, identify_drafter, kind_of_drafter
from mlxcel.store.problems import ModelUnusable, UnsupportedModel

Weights = Callable[..., bytes]


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        pytest.param({"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}, "dflash"),
        pytest.param({"architectures": ["Lfm2DSparkDraftModel"], "model_type": "lfm2"}, "dflash"),
        pytest.param({"architectures": "DFlashDraftModel"}, "dflash", id="one-name"),
        pytest.param({"model_type": "qwen3", "dflash_config": {}}, "dflash", id="block"),
        pytest.param(
            {"model_type": "qwen3_5_mtp", "dflash_config": {"block_size": 8}},
            "dflash",
            id="dflash-first",
        ),
        pytest.param({"model_type": "muse_glimmer_assistant"}, "dflash"),
        pytest.param({"model_type": "gemma4_assistant"}, "mtp"),
        pytest.param({"model_type": "qwen3_5_mtp"}, "mtp"),
        pytest.param({"model_type": "glm4_moe_lite_mtp"}, "mtp"),
        pytest.param({"model_type": "inkling_mtp"}, "mtp"),
        pytest.param(
            {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
            "full_model",
            id="ordinary",
        ),
        pytest.param({"model_type": "llama", "architectures": None}, "full_model", id="null"),
        pytest.param({}, "full_model", id="nothing"),
    ],
)
def test_what_a_drafter_is(config: dict[str, Any], kind: str) -> None:
    assert kind_of_drafter(config) == kind


def folder(path: Path, model_type: str) -> Path:
    config = {"model_type": model_type, "num_hidden_layers": 3}
    (path / "config.json").write_text(json.dumps(config))
    return path


def indexed(path: Path, *names: str) -> None:
    weight_map = dict.fromkeys(names, "model-00001-of-00002.safetensors")
    text = json.dumps({"weight_map": weight_map})
    (path / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize(
    ("model_type", "name", "brings"),
    [
        pytest.param("qwen3_5", "mtp.fc.weight", True, id="as-trained"),
        pytest.param("mimo", "model.mtp_layers.0.input_proj.weight", True, id="mimo"),
        pytest.param("deepseek_v3", "model.layers.3.eh_proj.weight", True, id="behind-the-last"),
        pytest.param("deepseek_v3", "model.layers.2.mlp.weight", False, id="the-last-layer"),
        pytest.param("qwen3_5", "language_model.mtp.fc.weight", True, id="converted"),
        pytest.param("qwen3_5", "model.layers.0.mtp.weight", False, id="inside-a-name"),
        pytest.param("qwen3_5", "lm_head.weight", False, id="left-out"),
        pytest.param("llama", "mtp.fc.weight", False, id="family-that-cannot-be-read"),
    ],
)
@pytest.mark.parametrize("has_index", [True, False], ids=["index", "header"])
def test_a_model_brings_heads(
    tmp_path: Path, weights: Weights, model_type: str, name: str, brings: bool, has_index: bool
) -> None:
    folder(tmp_path, model_type)
    if has_index:
        indexed(tmp_path, "norm.weight", name)
    else:
        tensors = weights(("norm.weight", "F32", 4), (name, "F32", 4))
        (tmp_path / "model.safetensors").write_bytes(tensors)
    assert brings_mtp(tmp_path) is brings


def test_a_drafter_need_not_be_a_model(tmp_path: Path) -> None:
    identify_drafter(folder(tmp_path, "qwen3_5_mtp"))
    identify_drafter(folder(tmp_path, "llama"))


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="nonesuch"):
        identify_drafter(folder(tmp_path, "nonesuch"))
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelUnusable, match="no config"):
        identify_drafter(tmp_path)


def test_the_engine_can_load_what_is_found() -> None:
    """One list on each side of the border; a refused family stands on the engine's alone."""
    from mlxcel.engine.draft.mtp.load import FAMILIES

    loaded = {target for family in FAMILIES for target in family.targets}
    assert loaded - set(MTP_HEADS) == {"qwen3_5_moe"}
    assert set(MTP_HEADS) <= loaded
    assert {kind_of_drafter({"model_type": family.model_type}) for family in FAMILIES} == {"mtp"}
