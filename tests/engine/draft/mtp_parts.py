"""Targets and heads as the parts of a worker."""

from pathlib import Path
from typing import Any

from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.mtp.load import load_mtp
from mlxcel.weights.load import LoadedModel, load_model

MODEL: dict[str, Any] = {
    "precision": "float32",
    "batch": 4,
    "device": "auto",
    "train_window": 0,
    "fuse_projections": "off",
    "weight_materialization": "eager",
}
HEADS: dict[str, Any] = {
    "path": None,
    "block_size": None,
    "precision": "auto",
    "quantize": True,
    "stochastic_accept": False,
    "glm_hidden_tap": "post",
    "weight_materialization": "eager",
}


def target(folder: Path, **options: Any) -> LoadedModel:
    return load_model({**MODEL, "path": str(folder), **options}, _quiet)


def heads(model: LoadedModel, folder: Path | None = None, **options: Any) -> DraftHead:
    """None: those in the model's own checkpoint."""
    path = None if folder is None else str(folder)
    return load_mtp({**HEADS, "path": path, **options}, _quiet, model=model)


def _quiet(text: str, share: float | None) -> None: ...
