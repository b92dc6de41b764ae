"""Tiny random mixtures with one layer more, in the layouts that are published."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.tiny.families import COMMON, network_of

Weights = dict[str, mx.array]

LAYERS = 2
MIXTURE: dict[str, Any] = COMMON | {
    "num_hidden_layers": LAYERS,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
    "rope_scaling": None,
}
GLM4_MOE_LITE = MIXTURE | {
    "model_type": "glm4_moe_lite",
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
DEEPSEEK_V3 = GLM4_MOE_LITE | {"model_type": "deepseek_v3", "moe_layer_freq": 1}
GLM4_MOE = MIXTURE | {
    "model_type": "glm4_moe",
    "use_qk_norm": True,
    "attention_bias": False,
    "partial_rotary_factor": 0.5,
}


def grown(config: dict[str, Any]) -> nn.Module:
    """The target with one layer more: the head's own."""
    network = network_of(config | {"num_hidden_layers": LAYERS + 1}, seed=1)
    for name, array in tree_flatten(network.parameters()):
        if "e_score" in name:
            noise = mx.random.uniform(-0.2, 0.2, array.shape, key=mx.random.key(5))
            network.load_weights([(name, noise)], strict=False)
    return network


def head_around(config: dict[str, Any]) -> Weights:
    """What stands around that layer."""
    size, vocab = config["hidden_size"], config["vocab_size"]
    keys = iter(mx.random.split(mx.random.key(2), 6))

    def random(*shape: int) -> mx.array:
        return mx.random.normal(shape, key=next(keys)) * shape[-1] ** -0.5

    return {
        "enorm.weight": 1 + 4 * random(size),
        "hnorm.weight": 1 + 4 * random(size),
        "eh_proj.weight": random(size, 2 * size),
        "shared_head_norm.weight": 1 + 4 * random(size),
        "embed_tokens.weight": random(vocab, size),
        "lm_head.weight": 5 * random(vocab, size),
    }


def build_target(folder: Path, config: dict[str, Any], heads: Weights | None = None) -> Path:
    """`heads`: more tensors of its file."""
    build_tiny_checkpoint(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = dict(tree_flatten(grown(config).parameters()))
    layer = f"model.layers.{LAYERS}."
    kept = {name: array for name, array in weights.items() if not name.startswith(layer)}
    mx.save_safetensors(str(folder / "model.safetensors"), kept | (heads or {}), {"format": "pt"})
    return folder


def build_head(folder: Path, config: dict[str, Any], **told: Any) -> Path:
    """As tools that take it out of a checkpoint write it."""
    folder.mkdir(parents=True)
    about = {"model_type": config["model_type"] + "_mtp", "text_config": config} | told
    (folder / "config.json").write_text(json.dumps(about), encoding="utf-8")
    around = {
        name if name.startswith("lm_head") else f"model.{name}": array
        for name, array in head_around(config).items()
    }
    block = {f"model.mtp_block.{name}": array for name, array in layer_of(grown(config)).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), around | block, {"format": "pt"})
    return folder


def layer_of(network: nn.Module) -> Weights:
    """Of the head's own layer, by the names mlx-lm has."""
    return dict(tree_flatten(network.model.layers[LAYERS].parameters()))


def as_trained(config: dict[str, Any]) -> Weights:
    """As a checkpoint has it: behind the target's layers, experts one by one, keys and values of
    latent attention in one matrix."""
    prefix = f"model.layers.{LAYERS}."
    moved = {"shared_head_norm.weight": "shared_head.norm.weight"}
    moved["lm_head.weight"] = "shared_head.head.weight"
    around = {prefix + moved.get(n, n): array for n, array in head_around(config).items()}
    block: Weights = {}
    layer = layer_of(grown(config))
    if "self_attn.embed_q.weight" in layer:
        keys = layer.pop("self_attn.embed_q.weight").swapaxes(-1, -2)
        both = mx.concatenate([keys, layer.pop("self_attn.unembed_out.weight")], axis=1)
        block[prefix + "self_attn.kv_b_proj.weight"] = both.reshape(-1, both.shape[-1])
    for name, array in layer.items():
        if "switch_mlp" not in name:
            block[prefix + name] = array
            continue
        for number, expert in enumerate(array):
            block[prefix + name.replace("switch_mlp", f"experts.{number}")] = expert
    return around | block
