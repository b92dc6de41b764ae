"""Tiny random targets of other families that were trained with heads, and their tensors as their
checkpoints have them."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.tiny.families import COMMON, network_of

Weights = dict[str, mx.array]

QWEN3_NEXT: dict[str, Any] = COMMON | {
    "model_type": "qwen3_next",
    "num_hidden_layers": 2,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 32,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "partial_rotary_factor": 0.5,
    "full_attention_interval": 2,
}
MIMO: dict[str, Any] = COMMON | {"model_type": "mimo", "num_hidden_layers": 2}
LAYERS = 2


def grown(config: dict[str, Any]) -> nn.Module:
    """The target with more layers: the last is the head's own."""
    more = LAYERS + (2 if config is QWEN3_NEXT else 1)
    return network_of(config | {"num_hidden_layers": more}, seed=1)


def layer_of(config: dict[str, Any]) -> Weights:
    return dict(tree_flatten(grown(config).model.layers[-1].parameters()))


def around(names: list[str], size: int) -> Weights:
    """Norms, and one projection from twice the size."""
    keys = mx.random.split(mx.random.key(2), len(names))
    made = {}
    for name, key in zip(names, keys, strict=True):
        shape = (size,) if "norm" in name else (size, 2 * size)
        noise = mx.random.normal(shape, key=key)
        made[f"{name}.weight"] = 1 + 0.4 * noise if "norm" in name else noise * size**-0.5
    return made


def around_next() -> Weights:
    return around(["pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"], 64)


def around_mimo() -> Weights:
    names = ["token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"]
    return around(names, 64)


def next_as_trained() -> Weights:
    """Experts one by one; norms that say what is added to one."""
    stored: Weights = {}
    layer = {f"layers.0.{name}": array for name, array in layer_of(QWEN3_NEXT).items()}
    for name, array in (around_next() | layer).items():
        if "switch_mlp" in name:
            for number, expert in enumerate(array):
                stored["mtp." + name.replace("switch_mlp", f"experts.{number}")] = expert
        else:
            stored[f"mtp.{name}"] = array - 1 if "norm" in name.split(".")[-2] else array
    return stored


def mimo_as_trained() -> Weights:
    return {f"model.mtp_layers.0.{n}": a for n, a in (around_mimo() | layer_of(MIMO)).items()}


def build_target(folder: Path, config: dict[str, Any]) -> Path:
    build_tiny_checkpoint(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = dict(tree_flatten(network_of(config, seed=3).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    return folder
