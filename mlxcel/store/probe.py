"""A model folder to its Card: reads JSON files and the headers of the weights, loads nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxcel.core.card import Card
from mlxcel.store import shards, supported
from mlxcel.store.problems import ModelUnusable, UnsupportedModel

WINDOW_KEYS = (
    "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length",
    "n_ctx",
)  # fmt: skip
STRETCHING_ROPES = ("yarn", "linear", "dynamic")
"""Position scalings whose factor comes on top of the window the config states."""
SAMPLING_KEYS = ("temperature", "top_k", "top_p")


def probe(folder: Path, single_row: Mapping[str, str]) -> Card:
    """`single_row`: model types that cannot batch, with the reason (conf/families.yaml).

    Raises ModelUnusable when the folder does not hold a model that can be loaded.
    """
    config, architecture = identify(folder)
    family = str(config["model_type"])
    shards.check(folder)
    generation = _optional(folder, "generation_config.json")
    reason = single_row.get(family) or single_row.get(architecture) or ""
    return Card(
        name=folder.name,
        family=family,
        train_window=train_window(config),
        can_batch=not reason,
        reason=reason,
        quantization_bits=_bits(config),
        sampling=_sampling(generation),
    )


def identify(folder: Path) -> tuple[dict[str, Any], str]:
    """config.json, and the mlx-lm model file that builds it."""
    config = config_of(folder)
    family = str(config["model_type"])
    architecture = supported.architecture(config)
    if architecture is None:
        raise UnsupportedModel(folder, family, supported.nearest(family))
    return config, architecture


def train_window(config: Mapping[str, Any]) -> int:
    """Tokens; 0 where the config does not say."""
    window = _stated_window(config)
    text = _part(config, "text_config")
    rope = _part(config, "rope_scaling") or _part(text, "rope_scaling")
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if kind not in STRETCHING_ROPES or not isinstance(factor, int | float):
        return window
    # A YaRN config states the window before scaling apart, and often the scaled one as well.
    before = rope.get("original_max_position_embeddings", 0) if kind == "yarn" else 0
    return max(window, int((before or window) * factor))


def config_of(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ModelUnusable(folder, "there is no such folder")
    if not (folder / "config.json").is_file():
        raise ModelUnusable(folder, "there is no config.json in it; it is not a model folder")
    config = _read(folder, "config.json")
    if not isinstance(config.get("model_type"), str):
        raise ModelUnusable(folder, "config.json names no model_type")
    return config


def _optional(folder: Path, name: str) -> dict[str, Any]:
    return _read(folder, name) if (folder / name).is_file() else {}


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        value = json.loads((folder / name).read_text(encoding="utf-8"))
    except ValueError as why:
        raise ModelUnusable(folder, f"{name} is not JSON: {why}") from why
    if not isinstance(value, dict):
        raise ModelUnusable(folder, f"{name} is not a JSON object")
    return value


def _stated_window(config: Mapping[str, Any]) -> int:
    """The first of the keys that is there, in the config or in its text part (vision models)."""
    for part in (config, _part(config, "text_config")):
        for key in WINDOW_KEYS:
            if isinstance(part.get(key), int):
                return int(part[key])
    return 0


def _part(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A nested object; empty where there is none, or something else."""
    part = config.get(key)
    return part if isinstance(part, Mapping) else {}


def _bits(config: Mapping[str, Any]) -> int | None:
    for key in ("quantization", "quantization_config"):
        bits = _part(config, key).get("bits")
        if isinstance(bits, int):
            return bits
    return None


def _sampling(generation: Mapping[str, Any]) -> dict[str, float | int]:
    """The checkpoint's own defaults, as far as they are numbers, whatever their size."""
    found = {key: generation.get(key) for key in SAMPLING_KEYS}
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
