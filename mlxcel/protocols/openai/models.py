"""The body of /v1/models: OpenAI's list with llama.cpp's extras, and an Ollama-style block."""

from typing import Any

from mlxcel.core.ports import ServedModel
from mlxcel.core.status import ModelInfo

VOCAB_TYPE_BPE = 2
"""llama.cpp's number for a byte-pair vocabulary."""


def models_body(
    model: ServedModel, info: ModelInfo | None, *, ftype: str, created: int
) -> dict[str, Any]:
    """`info` is None until the worker was ready once: what only it knows is then 0. `ftype` says
    how the weights are stored, "" where nobody knows."""
    return {
        "models": [_ollama_entry(model)],
        "object": "list",
        "data": [model_body(model, info, ftype=ftype, created=created)],
    }


def model_body(
    model: ServedModel, info: ModelInfo | None, *, ftype: str, created: int
) -> dict[str, Any]:
    """Its entry of the list, which is also what asking for one model answers."""
    return {
        "id": model.id,
        "aliases": list(model.aliases),
        "tags": list(model.tags),
        "object": "model",
        "created": created,
        "owned_by": "llamacpp",
        "meta": _meta(model, info, ftype),
        "capabilities": ["completion"],
    }


def _meta(model: ServedModel, info: ModelInfo | None, ftype: str) -> dict[str, Any]:
    return {
        "vocab_type": VOCAB_TYPE_BPE,
        "n_vocab": model.vocab_size,
        "n_ctx": model.context_window,
        "n_ctx_train": model.train_window,
        "n_embd": model.hidden_size,
        "n_params": info.parameters if info else 0,
        "size": info.weights_bytes if info else 0,
        "ftype": ftype or "MLX",
    }


def _ollama_entry(model: ServedModel) -> dict[str, Any]:
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "safetensors",
            "family": "",
            "families": [""],
            "parameter_size": "",
            "quantization_level": "",
        },
    }
