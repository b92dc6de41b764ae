"""The tiny Qwen3 and its DFlash head, loaded as a worker loads them."""

from pathlib import Path
from typing import Any

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash.drafter import DFlash
from mlxcel.engine.draft.dflash.load import load_dflash
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.weights.load import LoadedModel, load_model

GREEDY = SamplingParams(temperature=0.0)


def load_target(folder: Path, *, precision: str = "float32") -> LoadedModel:
    part = {
        "path": str(folder),
        "precision": precision,
        "batch": 4,
        "device": "auto",
        "weight_materialization": "eager",
        "train_window": 0,
        "fuse_projections": "off",
    }
    return load_model(part, _quiet)


def load_head(
    folder: Path,
    model: LoadedModel,
    *,
    precision: str = "auto",
    block_size: int | None = None,
    stochastic_accept: bool = False,
) -> DraftHead:
    part = {
        "path": str(folder),
        "precision": precision,
        "block_size": block_size,
        "stochastic_accept": stochastic_accept,
        "weight_materialization": "eager",
    }
    return load_dflash(part, _quiet, model=model)


def drafter_of(head: DraftHead, sampling: SamplingParams = GREEDY) -> DFlash:
    made = head.make(sampling)
    assert isinstance(made, DFlash)
    return made


def _quiet(text: str, share: float | None) -> Any: ...
