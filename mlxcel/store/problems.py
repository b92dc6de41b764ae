"""Why a model cannot be had or used. Each message says what to do."""

from collections.abc import Sequence
from pathlib import Path

from mlxcel.core.errors import StartupError


class ModelUnusable(StartupError):
    """The folder is there, but what it holds cannot be run."""

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(f"{directory}: {why}", param="model.path")
        self.directory = directory


class UnsupportedModel(ModelUnusable):
    def __init__(self, directory: Path, model_type: str, nearest: Sequence[str]) -> None:
        near = f"; nearest supported: {', '.join(nearest)}" if nearest else ""
        super().__init__(directory, f"model_type {model_type!r} is not supported by mlx-lm{near}")


class ModelMissing(StartupError):
    """No place that was searched has the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model.path")


class NoSpace(StartupError):
    def __init__(self, path: Path, needed_bytes: int | None, free_bytes: int) -> None:
        needs = "no space is left" if needed_bytes is None else f"{needed_bytes} bytes are needed"
        super().__init__(
            f"{path}: {needs}, {free_bytes} bytes are free; "
            "make room there or point --models-dir (model.store_root) to a larger disk"
        )
