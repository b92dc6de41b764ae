"""A tiny random Qwen 3.5 (two gated delta layers, two of attention) and next-token heads for it,
in the layouts in which they are published.

The target's layers are quiet against its residual and the head hands on the token it is given:
what it proposes comes true often, and often does not.
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.tiny.families import QWEN3_5, network_of

Weights = dict[str, mx.array]

TEXT: dict[str, Any] = QWEN3_5["text_config"]
HIDDEN: int = TEXT["hidden_size"]
LOUD = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
"""What layers add to the residual goes through these."""
QUIET = 0.3
GAIN = 6.0
"""Of the output layer: a draw at temperature 1 is not one of equals."""


def build_target(folder: Path, *, window: int = 512, seed: int = 1) -> Path:
    """As conversions for MLX are: no heads, norms that are multiplied as they stand."""
    _surroundings(folder, window)
    _save(folder / "model.safetensors", _target(seed))
    return folder


def build_head(
    folder: Path, *, prefix: str = "", weights: Weights | None = None, **config: Any
) -> Path:
    """A folder of its own, 15 tensors. `prefix`: of all names; with `mtp.` norms are zero-centred
    as they were trained. `config`: on top of what such a folder says."""
    folder.mkdir(parents=True)
    stored = as_stored(weights or head_weights(), prefix)
    told = {"model_type": "qwen3_5_mtp", "text_config": TEXT | {"mtp_num_hidden_layers": 1}}
    (folder / "config.json").write_text(json.dumps(told | config), encoding="utf-8")
    _save(folder / "model.safetensors", stored)
    return folder


def build_target_with_heads(folder: Path, *, window: int = 512, seed: int = 1) -> Path:
    """As it was trained, in two files that an index tells apart: the same model as
    `build_target`, with the heads of `build_head`."""
    _surroundings(folder, window)
    files = {
        "model-00001-of-00002.safetensors": _as_trained(_target(seed)),
        "model-00002-of-00002.safetensors": as_stored(head_weights(), "mtp."),
    }
    for name, weights in files.items():
        _save(folder / name, weights)
    index = {name: file for file, weights in files.items() for name in weights}
    told = json.dumps({"metadata": {}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(told, encoding="utf-8")
    return folder


def head_weights(layers: int = 1) -> Weights:
    """Names and norms as the network has them."""
    key = mx.random.key(1)

    def random(*shape: int, gain: float = 1.0) -> mx.array:
        nonlocal key
        key, now = mx.random.split(key)
        return gain * shape[-1] ** -0.5 * mx.random.normal(shape, key=now)

    def norm(size: int) -> mx.array:
        return 1.0 + 0.1 * random(size, gain=size**0.5)

    heads, kv, dim = (
        TEXT[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    inner: int = TEXT["intermediate_size"]
    hand_on = mx.concatenate([mx.eye(HIDDEN), mx.zeros((HIDDEN, HIDDEN))], axis=1)
    weights = {
        "fc.weight": hand_on + random(HIDDEN, 2 * HIDDEN, gain=QUIET),
        "pre_fc_norm_embedding.weight": norm(HIDDEN),
        "pre_fc_norm_hidden.weight": norm(HIDDEN),
        "norm.weight": norm(HIDDEN),
    }
    for layer in (f"layers.{n}" for n in range(layers)):
        weights |= {
            f"{layer}.input_layernorm.weight": norm(HIDDEN),
            f"{layer}.post_attention_layernorm.weight": norm(HIDDEN),
            f"{layer}.self_attn.q_proj.weight": random(2 * heads * dim, HIDDEN, gain=2.0),
            f"{layer}.self_attn.k_proj.weight": random(kv * dim, HIDDEN, gain=2.0),
            f"{layer}.self_attn.v_proj.weight": random(kv * dim, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": random(HIDDEN, heads * dim, gain=QUIET),
            f"{layer}.self_attn.q_norm.weight": norm(dim),
            f"{layer}.self_attn.k_norm.weight": norm(dim),
            f"{layer}.mlp.gate_proj.weight": random(inner, HIDDEN),
            f"{layer}.mlp.up_proj.weight": random(inner, HIDDEN),
            f"{layer}.mlp.down_proj.weight": random(HIDDEN, inner, gain=QUIET),
        }
    return weights


def as_stored(weights: Weights, prefix: str) -> Weights:
    """With `mtp.` before the names a norm says what is added to one."""
    less = 1.0 if prefix == "mtp." else 0.0
    return {
        prefix + name: array - less if _is_norm(name) else array for name, array in weights.items()
    }


def _target(seed: int) -> Weights:
    found: Weights = dict(tree_flatten(network_of(QWEN3_5, seed).parameters()))
    for name, array in found.items():
        if name.endswith(LOUD):
            found[name] = QUIET * array
        elif "embed_tokens" in name:
            found[name] = HIDDEN**0.5 * array
        elif "lm_head" in name:
            found[name] = GAIN * array
    return found


def _as_trained(weights: Weights) -> Weights:
    stored: Weights = {}
    for name, array in weights.items():
        if "conv1d" in name:
            array = array.moveaxis(1, 2)
        if _is_norm(name) and "linear_attn" not in name:
            array = array - 1.0
        name = name.replace("language_model.model.", "model.language_model.")
        stored[name.replace("language_model.lm_head", "lm_head")] = array
    return stored


def _is_norm(name: str) -> bool:
    return "norm" in name.split(".")[-2]


def _surroundings(folder: Path, window: int) -> None:
    build_tiny_checkpoint(folder, window=window)
    (folder / "model.safetensors").unlink()
    told = QWEN3_5 | {"max_position_embeddings": window}
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")


def _save(file: Path, weights: Weights) -> None:
    mx.save_safetensors(str(file), weights, {"format": "pt"})
