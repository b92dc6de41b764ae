"""The config.json of a DFlash head: names, defaults, nesting, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.engine.draft.dflash.config import DFlashConfig, read_config


def read(folder: Path, told: Any) -> DFlashConfig:
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return read_config(folder)


def test_defaults_are_those_of_the_table(tmp_path: Path) -> None:
    found = read(tmp_path, {})
    assert found == DFlashConfig(layer_types=("full_attention",) * 5)
    assert (found.hidden_size, found.intermediate_size, found.num_hidden_layers) == (2560, 9728, 5)
    assert (found.num_attention_heads, found.num_key_value_heads, found.head_dim) == (32, 8, 128)
    assert (found.rms_norm_eps, found.rope_theta) == (1e-6, 1e7)
    assert (found.vocab_size, found.max_position_embeddings) == (248320, 262144)
    assert (found.block_size, found.mask_token_id) == (16, 248070)
    assert (found.target_layer_ids, found.num_target_layers) == ((1, 8, 15, 22, 29), 32)
    assert found.tie_word_embeddings
    assert found.rope_is_neox_style
    assert found.is_causal
    assert found.sliding_window is found.final_logit_softcapping is None


def test_a_published_file_is_read(tmp_path: Path) -> None:
    """That of Qwen3-4B's head."""
    told = {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "attention_bias": False,
        "block_size": 16,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
        "hidden_act": "silu",
        "hidden_size": 2560,
        "layer_types": ["full_attention"] * 5,
        "max_position_embeddings": 40960,
        "num_hidden_layers": 5,
        "num_target_layers": 36,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "vocab_size": 151936,
    }
    found = read(tmp_path, told)
    assert (found.mask_token_id, found.target_layer_ids) == (151669, (1, 9, 17, 25, 33))
    assert (found.num_target_layers, found.rope_theta, found.rope_scaling) == (36, 1e6, None)


def test_the_nested_block_wins(tmp_path: Path) -> None:
    nested = {"block_size": 8, "is_causal": False, "final_logit_softcapping": 30.0}
    found = read(tmp_path, {"block_size": 16, "is_causal": True, "dflash_config": nested})
    assert (found.block_size, found.is_causal, found.final_logit_softcapping) == (8, False, 30.0)


@pytest.mark.parametrize(
    ("told", "width", "widest"),
    [
        pytest.param({}, 16, 16, id="dflash"),
        pytest.param({"runtime_block_size": 4}, 16, 16, id="dflash-has-no-other"),
        pytest.param({"markov_rank": 8, "block_size": 9}, 8, 10, id="dspark"),
        pytest.param({"markov_rank": 8, "block_size": 5}, 6, 6, id="dspark-short"),
        pytest.param(
            {"markov_rank": 8, "block_size": 9, "runtime_block_size": 9}, 9, 10, id="dspark-told"
        ),
        pytest.param({"markov_rank": 8, "block_size": 40}, 8, 32, id="dspark-long"),
    ],
)
def test_how_wide_a_verify_step_is(
    tmp_path: Path, told: dict[str, Any], width: int, widest: int
) -> None:
    """A DSpark head proposes at every position of a block, others not at the first."""
    found = read(tmp_path, told)
    assert (found.width, found.widest) == (width, widest)


def test_rope_parameters_are_theta_and_scaling(tmp_path: Path) -> None:
    block = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}
    found = read(tmp_path, {"rope_parameters": block})
    assert (found.rope_theta, found.rope_scaling) == (5000.0, block)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        pytest.param({"selector_rank": 64}, "selector_rank is 64: .* second gen", id="selector"),
        pytest.param({"conv_kernel_size": 4}, "conv_kernel_size is 4: .* second", id="conv"),
        pytest.param(
            {"markov_rank": 9, "markov_head_type": "gated"},
            "markov_head_type is gated: .* only vanilla",
            id="dspark-gated",
        ),
        pytest.param({"markov_rank": -1}, "markov_rank is -1", id="dspark-below-0"),
        pytest.param({"runtime_block_size": 1}, "runtime_block_size is 1: at least 2", id="width"),
        pytest.param({"use_swa": True}, "use_swa is True", id="window-of-all-layers"),
        pytest.param({"block_size": 1}, "block_size is 1: at least 2", id="block-too-small"),
        pytest.param({"block_size": "16"}, "block_size is 16: a whole number", id="block-text"),
        pytest.param({"hidden_size": True}, "hidden_size is True: a whole number", id="size-bool"),
        pytest.param({"hidden_size": 63}, "hidden_size is 63: an even number", id="size-odd"),
        pytest.param({"rope_theta": 0}, "rope_theta is 0: a number above 0", id="theta"),
        pytest.param({"is_causal": "no"}, "is_causal is no: true or false", id="flag"),
        pytest.param({"rope_scaling": 2}, "rope_scaling is 2: an object", id="scaling"),
        pytest.param(
            {"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters is", id="partial"
        ),
        pytest.param({"num_key_value_heads": 5}, "num_key_value_heads is 5", id="heads"),
        pytest.param({"mask_token_id": 248320}, "vocab_size is 248320", id="mask"),
        pytest.param({"hidden_act": "gelu"}, "hidden_act is gelu", id="activation"),
        pytest.param({"target_layer_ids": []}, "target_layer_ids is", id="taps-none"),
        pytest.param({"target_layer_ids": [1, 1]}, "different layers", id="taps-twice"),
        pytest.param({"target_layer_ids": [1, 32]}, "layers 0 to 31", id="taps-beyond"),
        pytest.param({"layer_types": ["full_attention"]}, "5 of full_att", id="layers-missing"),
        pytest.param({"layer_types": ["linear_attention"] * 5}, "layer_types is", id="layers-odd"),
        pytest.param(
            {"layer_types": ["sliding_attention"] * 5}, "need a sliding_window", id="no-window"
        ),
        pytest.param({"dflash_config": 3}, "no JSON object", id="nested-number"),
        pytest.param([], "no JSON object", id="list"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, told: Any, message: str) -> None:
    with pytest.raises(StartupError, match=message):
        read(tmp_path, told)


def test_neutral_values_of_other_heads_are_no_such_head(tmp_path: Path) -> None:
    read(tmp_path, {"selector_rank": 0, "conv_kernel_size": None, "use_swa": False})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(StartupError, match=r"config\.json cannot be read"):
        read_config(tmp_path)
    with pytest.raises(StartupError, match=r"config\.json cannot be read"):
        read_config(tmp_path / "nowhere")
