"""An adapter folder to its low-rank parts, in the two layouts people have.

mlx-lm writes `adapters.safetensors`, PEFT `adapter_model.safetensors`; both put an
`adapter_config.json` beside it. Knows nothing of the model the adapter is for.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxcel.core.errors import StartupError
from mlxcel.weights.lora.low_rank import LowRank

CONFIG = "adapter_config.json"
MLX_FILE = "adapters.safetensors"
PEFT_FILE = "adapter_model.safetensors"

Sides = dict[str, mx.array]
"""`a` and `b` of one layer, as far as the file holds them."""

_SHOWN = 8
_MLX_TENSOR = re.compile(r"(?P<layer>.+)\.lora_(?P<side>[ab])")
_PEFT_TENSOR = re.compile(
    r"(?:base_model\.model\.)?(?P<layer>.+)\."
    r"(?:lora_(?P<side>[AB])(?:\.[^.]+)?\.weight|lora_embedding_(?P<table>[AB])(?:\.[^.]+)?)"
)
_PEFT_REFUSED = {
    "use_dora": "DoRA",
    "alora_invocation_tokens": "activated LoRA",
    "layer_replication": "layer replication",
}


def read_adapter(folder: Path) -> tuple[LowRank, ...]:
    """Raises StartupError when it is no LoRA, or its tensors do not pair."""
    config = _config(folder)
    if "peft_type" in config or "lora_alpha" in config:
        return _read_peft(folder, config)
    if "lora_parameters" in config or "fine_tune_type" in config:
        return _read_mlx(folder, config)
    raise StartupError(
        f"{folder / CONFIG} is of no known kind: mlx-lm writes lora_parameters into it, "
        "PEFT peft_type and lora_alpha"
    )


def refusal(folder: Path | str, problems: Iterable[str]) -> StartupError:
    """One error that lists what is wrong, the first few by name."""
    found = sorted(problems)
    shown = "".join(f"\n  {problem}" for problem in found[:_SHOWN])
    rest = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return StartupError(f"the adapter {folder} does not fit:{shown}{rest}")


def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise StartupError(f"there is no adapter folder {folder}; name the folder of {CONFIG}")
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise StartupError(f"{path} cannot be read as JSON: {why}") from why
    if not isinstance(config, dict):
        raise StartupError(f"{path} must hold a JSON object, not {type(config).__name__}")
    return config


def _tensors(path: Path) -> dict[str, mx.array]:
    if not path.is_file():
        raise StartupError(f"{path} is missing: an adapter of this kind keeps its tensors there")
    try:
        loaded: Any = mx.load(str(path))
    except RuntimeError as why:
        raise StartupError(f"{path} cannot be read: {why}") from why
    return dict(loaded)


def _number(folder: Path, section: Mapping[str, Any], key: str) -> float:
    value: Any = section.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise StartupError(f"{folder / CONFIG}: {key} must be a finite number, not {value!r}")
    return float(value)


def _read_mlx(folder: Path, config: Mapping[str, Any]) -> tuple[LowRank, ...]:
    kind = config.get("fine_tune_type", "lora")
    if kind != "lora":
        raise StartupError(f"{folder} is no LoRA: its fine_tune_type is {kind!r}; fuse it instead")
    parameters = config.get("lora_parameters")
    if not isinstance(parameters, dict):
        raise StartupError(f"{folder / CONFIG} has no lora_parameters with a scale")
    factor = _number(folder, parameters, "scale")
    layers = _paired(folder, _tensors(folder / MLX_FILE), _mlx_place)
    parts = [
        LowRank(layer=layer, down=sides["a"], up=sides["b"], factor=factor)
        for layer, sides in layers.items()
    ]
    rank = parameters.get("rank")
    _refuse_ranks(folder, parts, lambda layer: rank)
    return tuple(parts)


def _mlx_place(name: str) -> tuple[str, str] | None:
    found = _MLX_TENSOR.fullmatch(name)
    return (found["layer"], found["side"]) if found else None


def _read_peft(folder: Path, config: Mapping[str, Any]) -> tuple[LowRank, ...]:
    for key, kind in _PEFT_REFUSED.items():
        if config.get(key):
            raise StartupError(f"{folder} is no plain LoRA but {kind} ({key}); merge it instead")
    if (kind := config.get("peft_type", "LORA")) != "LORA":
        raise StartupError(f"{folder} is no LoRA: its peft_type is {kind!r}")
    _number(folder, config, "lora_alpha")
    layers = _paired(folder, _tensors(folder / PEFT_FILE), _peft_place)
    parts = [
        # PEFT keeps weights of nn.Linear: `[r, in]` and `[out, r]`.
        LowRank(
            layer=layer,
            down=sides["a"].T,
            up=sides["b"].T,
            factor=_peft_factor(folder, config, layer, rank=sides["a"].shape[0]),
        )
        for layer, sides in layers.items()
    ]
    ranks = config.get("rank_pattern") or {}
    _refuse_ranks(folder, parts, lambda layer: _patterned(ranks, layer, config.get("r")))
    return tuple(parts)


def _peft_place(name: str) -> tuple[str, str] | None:
    found = _PEFT_TENSOR.fullmatch(name)
    return (found["layer"], (found["side"] or found["table"]).lower()) if found else None


def _peft_factor(folder: Path, config: Mapping[str, Any], layer: str, *, rank: int) -> float:
    alphas = config.get("alpha_pattern") or {}
    alpha = _patterned(alphas, layer, config["lora_alpha"])
    alpha = _number(folder, {"lora_alpha": alpha}, "lora_alpha")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _patterned(patterns: Mapping[str, Any], layer: str, default: Any) -> Any:
    """The value of the first pattern that is the end of the layer's name, as in PEFT."""
    matches = (p for p in patterns if re.fullmatch(rf"(.*\.)?({p})", layer))
    return next((patterns[pattern] for pattern in matches), default)


def _paired(
    folder: Path,
    tensors: Mapping[str, mx.array],
    place: Callable[[str], tuple[str, str] | None],
) -> dict[str, Sides]:
    layers: dict[str, Sides] = {}
    problems = []
    for name, tensor in tensors.items():
        found = place(name)
        if found is None:
            problems.append(f"{name}: is no lora_a or lora_b")
        elif tensor.ndim not in (2, 3):
            problems.append(f"{name}: has the shape {tensor.shape}")
        else:
            layers.setdefault(found[0], {})[found[1]] = tensor
    for layer, sides in layers.items():
        if missing := {"a", "b"} - sides.keys():
            problems.append(f"{layer}: has no lora_{missing.pop()}")
    if not tensors:
        problems.append("it holds no tensors")
    if problems:
        raise refusal(folder, problems)
    return layers


def _refuse_ranks(folder: Path, parts: Iterable[LowRank], stated: Callable[[str], Any]) -> None:
    """A rank the configuration states must be that of the tensors: alpha / r rests on it."""
    problems = [
        f"{part.layer}: is of rank {part.rank}, but {CONFIG} says {rank}"
        for part in parts
        if (rank := stated(part.layer)) is not None and rank != part.rank
    ]
    if problems:
        raise refusal(folder, problems)
