"""A tiny random llama checkpoint that speaks bytes, written from a seed without mlx.

Its greedy output is varied and full of broken UTF-8. It practically never ends by itself: the
output rows of the markers are zero, so that the length of an answer is what a test asked for.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken

from mlxcel.core.byte_vocab import BOS, BYTES, END, EOS, VOCAB_SIZE
from mlxcel.text.bytes import BYTE_TEMPLATE, byte_tokenizer

Matrix = np.ndarray[Any, np.dtype[np.float32]]
Weights = dict[str, Matrix]

FIRST_MARKER = VOCAB_SIZE - 1
"""The id that the vocabulary of bytes leaves unused."""


def build_tiny_checkpoint(
    path: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    window: int = 512,
    markers: Sequence[str] = (),
    template: str = BYTE_TEMPLATE,
) -> Path:
    """Writes the folder `path` and returns it. The same arguments give the same bytes.

    Each of `markers` is one more token, from id `FIRST_MARKER` on. The model does not say them
    unless a bias or the engine makes it.
    """
    path.mkdir(parents=True, exist_ok=True)
    config = _config(layers, hidden, heads, kv_heads, window)
    if markers:
        config["vocab_size"] += 8 * -(-len(markers) // 8)
    _write_json(path / "config.json", config)
    _write_tokenizer(path, window, markers, template)
    save_file(_weights(config, seed), path / "model.safetensors", metadata={"format": "mlx"})
    return path


def _config(layers: int, hidden: int, heads: int, kv_heads: int, window: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": VOCAB_SIZE,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "max_position_embeddings": window,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": BOS,
        "eos_token_id": [EOS, END],
    }


def _write_tokenizer(path: Path, window: int, markers: Sequence[str], template: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(m, special=False, normalized=False) for m in markers])
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "model_max_length": window,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }
    _write_json(path / "tokenizer_config.json", config)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _weights(config: dict[str, Any], seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv, vocab = config["num_key_value_heads"] * config["head_dim"], config["vocab_size"]

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Matrix:
        values = rng.standard_normal((rows, columns), dtype=np.float32)
        return values * np.float32(gain * columns**-0.5)

    # Attention is loud against the residual: a quiet one makes greedy output a short cycle.
    weights: Weights = {"model.embed_tokens.weight": matrix(vocab, hidden, gain=hidden**0.5)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        weights[f"{layer}.self_attn.q_proj.weight"] = matrix(hidden, hidden, gain=2.0)
        weights[f"{layer}.self_attn.k_proj.weight"] = matrix(kv, hidden, gain=2.0)
        weights[f"{layer}.self_attn.v_proj.weight"] = matrix(kv, hidden, gain=2.0)
        weights[f"{layer}.self_attn.o_proj.weight"] = matrix(hidden, hidden, gain=2.0)
        weights[f"{layer}.mlp.gate_proj.weight"] = matrix(inner, hidden, gain=2.0)
        weights[f"{layer}.mlp.up_proj.weight"] = matrix(inner, hidden, gain=2.0)
        weights[f"{layer}.mlp.down_proj.weight"] = matrix(hidden, inner)
        weights[f"{layer}.input_layernorm.weight"] = np.ones(hidden, np.float32)
        weights[f"{layer}.post_attention_layernorm.weight"] = np.ones(hidden, np.float32)
    weights["model.norm.weight"] = np.ones(hidden, np.float32)
    head = matrix(vocab, hidden, gain=3.0)
    head[BYTES:] = 0.0
    weights["lm_head.weight"] = head
    return weights
