"""Tiny random networks of other families, without a checkpoint: state beside attention, latent
attention, windows, experts."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes

from mlxcel.core.byte_vocab import VOCAB_SIZE
from tests.tiny.checkpoint import build_tiny_checkpoint

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
NEMOTRON_H = COMMON | {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": ["M", "-", "*", "M"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "n_groups": 2,
    "time_step_limit": (0.0, 1e9),
    "layer_norm_epsilon": 1e-5,
    "mamba_proj_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "use_conv_bias": True,
    "residual_in_fp32": False,
}
GEMMA3 = COMMON | {
    "model_type": "gemma3_text",
    "num_hidden_layers": 2,
    "sliding_window": 32,
    "sliding_window_pattern": 2,
    "query_pre_attn_scalar": 16,
}
QWEN3_MOE = COMMON | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
DEEPSEEK_V3 = COMMON | {
    "model_type": "deepseek_v3",
    "q_lora_rank": 32,
    "kv_lora_rank": 48,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": None,
    "first_k_dense_replace": 9,
    "moe_intermediate_size": 32,
    "moe_layer_freq": 1,
    "rope_scaling": None,
}
MAMBA2 = COMMON | {
    "model_type": "mamba2",
    "num_hidden_layers": 2,
    "num_heads": 8,
    "state_size": 16,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "n_groups": 2,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_limit": (0.0, 1e9),
    "time_step_rank": "auto",
}
QWEN3_5 = {
    "model_type": "qwen3_5",
    "text_config": COMMON
    | {
        "model_type": "qwen3_5_text",
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 16,
        "full_attention_interval": 2,
        "rope_parameters": {"type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
}
FALCON_H1 = COMMON | {
    "model_type": "falcon_h1",
    "num_hidden_layers": 2,
    "mamba_d_ssm": 64,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
}
GEMMA4 = COMMON | {
    "model_type": "gemma4_text",
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "global_head_dim": 32,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 16,
    "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
GPT_OSS = COMMON | {
    "model_type": "gpt_oss",
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 32,
    "rope_scaling": None,
    "layer_types": ["sliding_attention", "full_attention"],
}
LLAMA4 = {
    "model_type": "llama4",
    "text_config": COMMON
    | {
        "model_type": "llama4_text",
        "attention_bias": False,
        "attention_chunk_size": 32,
        "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 128,
        "num_experts_per_tok": 1,
        "num_local_experts": 2,
        "rope_scaling": None,
        "use_qk_norm": True,
    },
}


def network_of(config: dict[str, Any], seed: int = 0) -> nn.Module:
    """The network mlx-lm builds for the config, with the weights of a seed."""
    mx.random.seed(seed)
    model, args = _get_classes(config)
    network = model(args.from_dict(config))
    mx.eval(network.parameters())
    return network


def build_family_checkpoint(path: Path, config: dict[str, Any], *, window: int) -> Path:
    """The tiny checkpoint's folder with a network of another kind: one that programs can serve."""
    build_tiny_checkpoint(path, window=window)
    told = config | {"max_position_embeddings": window}
    (path / "config.json").write_text(json.dumps(told), encoding="utf-8")
    weights = dict(tree_flatten(network_of(told).parameters()))
    mx.save_safetensors(str(path / "model.safetensors"), weights, {"format": "mlx"})
    return path


def hybrid_network() -> nn.Module:
    """Two Mamba2 layers, one of attention, one without state."""
    return network_of(NEMOTRON_H)
