"""A tiny random Qwen3 and a DFlash head for it, in the layouts in which they are published; an LFM2
for heads of the kind DSpark."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxcel.core.byte_vocab import VOCAB_SIZE
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.tiny.families import COMMON

LAYERS = 4
HIDDEN = 64
CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "attention_bias": False,
    "hidden_act": "silu",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "layer_types": ["full_attention", "full_attention"],
    "sliding_window": None,
    "use_sliding_window": False,
    "num_target_layers": LAYERS,
    "block_size": 6,
    "dflash_config": {"mask_token_id": VOCAB_SIZE - 1, "target_layer_ids": [0, 2, 3]},
}
"""As the files of Qwen3's heads are, keys and nesting."""

DSPARK: dict[str, Any] = {
    "architectures": ["Lfm2DSparkDraftModel"],
    "markov_rank": 8,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "rope_is_neox_style": False,
}
"""On top of that, in those of LFM2's."""
LFM2: dict[str, Any] = COMMON | {
    "model_type": "lfm2",
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": HIDDEN,
    "block_multiple_of": 16,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["conv", "full_attention"] * 2,
}


def build_target(folder: Path, *, window: int = 512, seed: int = 0) -> Path:
    """The tiny checkpoint as a Qwen3 of `LAYERS` layers."""
    build_tiny_checkpoint(folder, layers=LAYERS, hidden=HIDDEN, window=window, seed=seed)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    file = folder / "model.safetensors"
    weights: dict[str, Any] = dict(mx.load(str(file)))
    for n in range(LAYERS):
        for name in ("q_norm", "k_norm"):
            weights[f"model.layers.{n}.self_attn.{name}.weight"] = mx.ones(config["head_dim"])
    mx.eval(weights)
    mx.save_safetensors(str(file), weights, {"format": "mlx"})
    return folder


def build_head(
    folder: Path,
    *,
    prefix: str = "",
    seed: int = 7,
    weights: Mapping[str, mx.array] | None = None,
    **config: Any,
) -> Path:
    """`prefix`: of all names of tensors. `config`: on top of `CONFIG`."""
    folder.mkdir(parents=True)
    told = CONFIG | config
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")
    tensors = head_weights(seed, **config) if weights is None else weights
    named = {f"{prefix}{name}": array for name, array in tensors.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), named, {"format": "pt"})
    return folder


def head_weights(seed: int = 7, **config: Any) -> dict[str, mx.array]:
    told = CONFIG | config
    told |= told["dflash_config"]
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, gain: float = 2.0) -> mx.array:
        return mx.array(gain * columns**-0.5 * rng.standard_normal((rows, columns), np.float32))

    def norm(size: int) -> mx.array:
        return mx.array(1 + 0.2 * rng.standard_normal(size, np.float32))

    hidden, inner, dim = told["hidden_size"], told["intermediate_size"], told["head_dim"]
    queries, keys = (dim * told[f"num_{name}_heads"] for name in ("attention", "key_value"))
    weights = {
        "fc.weight": matrix(hidden, len(told["target_layer_ids"]) * hidden),
        "hidden_norm.weight": norm(hidden),
        "norm.weight": norm(hidden),
    }
    for n in range(told["num_hidden_layers"]):
        weights |= {
            f"layers.{n}.input_layernorm.weight": norm(hidden),
            f"layers.{n}.post_attention_layernorm.weight": norm(hidden),
            f"layers.{n}.self_attn.q_proj.weight": matrix(queries, hidden),
            f"layers.{n}.self_attn.k_proj.weight": matrix(keys, hidden),
            f"layers.{n}.self_attn.v_proj.weight": matrix(keys, hidden),
            f"layers.{n}.self_attn.o_proj.weight": matrix(hidden, queries),
            f"layers.{n}.self_attn.q_norm.weight": norm(dim),
            f"layers.{n}.self_attn.k_norm.weight": norm(dim),
            f"layers.{n}.mlp.gate_proj.weight": matrix(inner, hidden),
            f"layers.{n}.mlp.up_proj.weight": matrix(inner, hidden),
            f"layers.{n}.mlp.down_proj.weight": matrix(hidden, inner),
        }
    if rank := told.get("markov_rank"):
        vocab = told["vocab_size"]
        weights |= {
            "markov_head.markov_w1.weight": matrix(vocab, rank, gain=rank**0.5),
            "markov_head.markov_w2.weight": matrix(vocab, rank, gain=6.0),
            "confidence_head.proj.weight": matrix(1, hidden + rank),
            "confidence_head.proj.bias": norm(1),
        }
    return weights
