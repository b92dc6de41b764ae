"""Adapter folders with random tensors, as mlx-lm and as PEFT write them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mlxcel.weights.load import LoadedModel, load_model

LAYERS = {
    # in, out of the tiny checkpoint
    "model.layers.0.self_attn.q_proj": (64, 64),
    "model.layers.1.self_attn.v_proj": (64, 32),
    "model.layers.1.mlp.down_proj": (128, 64),
}
RANK = 4
SCALE = 2.0

Tensors = dict[str, np.ndarray[Any, np.dtype[np.float32]]]


def pairs(seed: int = 0, layers: Mapping[str, tuple[int, int]] = LAYERS) -> Tensors:
    """By mlx-lm's names, large enough to change what the tiny model says."""
    rng = np.random.default_rng(seed)
    found: Tensors = {}
    for layer, (inner, outer) in layers.items():
        found[f"{layer}.lora_a"] = rng.standard_normal((inner, RANK), dtype=np.float32) / 8
        found[f"{layer}.lora_b"] = rng.standard_normal((RANK, outer), dtype=np.float32) / 4
    return found


def write_mlx(folder: Path, tensors: Tensors | None = None, **config: Any) -> Path:
    written = {
        "fine_tune_type": "lora",
        "num_layers": 2,
        "lora_parameters": {"rank": RANK, "scale": SCALE, "dropout": 0.0},
    }
    return _write(folder, "adapters.safetensors", written | config, tensors)


def write_peft(folder: Path, tensors: Tensors | None = None, **config: Any) -> Path:
    """The same tensors in PEFT's orientation; alpha / r is the same scale."""
    written = {"peft_type": "LORA", "r": RANK, "lora_alpha": SCALE * RANK}
    turned = {
        _peft_name(name): np.ascontiguousarray(tensor.T)
        for name, tensor in (pairs() if tensors is None else tensors).items()
    }
    return _write(folder, "adapter_model.safetensors", written | config, turned)


def lora_options(
    *folders: Path, scales: Iterable[object] | None = None, fuse: bool = False, off: bool = False
) -> dict[str, Any]:
    """What the model part gets as `lora`."""
    wanted = [1.0] * len(folders) if scales is None else list(scales)
    return {
        "adapters": [
            {"path": str(folder), "scale": scale}
            for folder, scale in zip(folders, wanted, strict=True)
        ],
        "fuse": fuse,
        "init_without_apply": off,
    }


def load_tiny(
    folder: Path, lora: Mapping[str, Any] | None = None, precision: str = "float32"
) -> LoadedModel:
    options = {
        "path": str(folder),
        "precision": precision,
        "batch": 4,
        "device": "auto",
        "train_window": 512,
        "fuse_projections": "off",
        "weight_materialization": "eager",
        "lora": lora,
    }
    return load_model(options, lambda step, fraction: None)


def _peft_name(name: str) -> str:
    layer, _, side = name.rpartition(".")
    return f"base_model.model.{layer}.{side[:-1]}{side[-1].upper()}.weight"


def _write(folder: Path, file: str, config: dict[str, Any], tensors: Tensors | None) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(pairs() if tensors is None else tensors, folder / file)
    return folder
