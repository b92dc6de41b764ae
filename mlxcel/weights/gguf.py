"""A GGUF file of the llama architecture to an MLX checkpoint folder.

`python -m mlxcel.weights.gguf SRC OUT_DIR` is run by the store as a process of its own, since
the front never imports mlx. It prints `progress <fraction> <text>` lines. Quantised blocks
(Q4_0, Q4_1, Q8_0) stay as stored: `mx.load` returns them as MLX affine arrays, group 32.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxcel.weights.gguf_tokenizer import tokenizer_from_gguf

GROUP = 32
PACKED_BITS = 32

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

Weights = dict[str, mx.array]
Metadata = Mapping[str, Any]


def hf_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor; None for those MLX models do not hold."""
    stem, _, kind = name.rpartition(".")
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{kind}"
    parts = stem.split(".", 2)
    if len(parts) != 3 or parts[0] != "blk" or parts[2] not in LAYER_NAMES:
        return None
    return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{kind}"


def unpermute(rows: mx.array, heads: int) -> mx.array:
    """Undo llama.cpp's interleaving of the rotary rows of q and k.

    It acts on output rows, so it is right for packed weights, scales and biases alike.
    """
    n, *rest = rows.shape
    pairs = rows.reshape(heads, n // heads // 2, 2, *rest)
    return pairs.swapaxes(1, 2).reshape(n, *rest)


def convert_weights(weights: Weights, meta: Metadata) -> Weights:
    heads = {
        "attn_q": meta["llama.attention.head_count"],
        "attn_k": meta["llama.attention.head_count_kv"],
    }
    out: Weights = {}
    for name, array in weights.items():
        new = hf_name(name)
        if new is None:
            continue
        part = name.split(".")[-2]
        out[new] = unpermute(array, heads[part]) if part in heads else array
    return out


def quantization(weights: Weights) -> dict[str, Any] | None:
    """The config entry for the packed weights: the commonest form, and what differs from it."""
    forms: dict[str, dict[str, int]] = {}
    for key, scales in weights.items():
        if key.endswith(".scales"):
            path = key.removesuffix(".scales")
            width = weights[f"{path}.weight"].shape[-1] * PACKED_BITS
            forms[path] = {"group_size": GROUP, "bits": width // (scales.shape[-1] * GROUP)}
    if not forms:
        return None
    bits = [form["bits"] for form in forms.values()]
    common = {"group_size": GROUP, "bits": max(set(bits), key=bits.count)}
    return common | {"mode": "affine"} | {k: v for k, v in forms.items() if v != common}


def convert_config(meta: Metadata, weights: Weights) -> dict[str, Any]:
    def get(key: str, default: Any = None) -> Any:
        return meta.get(f"llama.{key}", default)

    heads = get("attention.head_count")
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": get("embedding_length"),
        "num_hidden_layers": get("block_count"),
        "intermediate_size": get("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "rms_norm_eps": round(get("attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": get("rope.freq_base", 10000.0),
        "max_position_embeddings": get("context_length"),
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float16",
    }
    if (packed := quantization(weights)) is not None:
        config["quantization"] = config["quantization_config"] = packed
    return config


def convert(source: Path, out: Path) -> None:
    """Write config, weights and tokenizer of `source` into the existing folder `out`."""
    _say(0.0, "reading")
    loaded: Any = mx.load(str(source), format="gguf", return_metadata=True)
    arrays, raw = loaded
    meta = {k: v.tolist() if isinstance(v, mx.array) else v for k, v in raw.items()}
    if (arch := meta.get("general.architecture")) != "llama":
        raise SystemExit(f"{source.name} is of architecture {arch!r}; only llama is converted")
    weights = convert_weights(arrays, meta)
    _say(0.3, "writing weights")
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "mlx"})
    _say(0.8, "writing tokenizer")
    tokenizer, tokenizer_config = tokenizer_from_gguf(meta)
    tokenizer.save(str(out / "tokenizer.json"))
    _write_json(out / "tokenizer_config.json", tokenizer_config)
    # Last: a folder with a config.json is a checkpoint.
    _write_json(out / "config.json", convert_config(meta, weights))
    _say(1.0, "done")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")


def _say(fraction: float, text: str) -> None:
    print(f"progress {fraction:.2f} {text}", flush=True)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
