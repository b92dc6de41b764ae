"""The part `drafter` of a worker: a smaller model that proposes tokens."""

from collections.abc import Mapping
from typing import Any

from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

from mlxcel.core.errors import StartupError
from mlxcel.weights.load import LoadedModel, load_model
from mlxcel.weights.words import words_of
from mlxcel.worker.base import Progress


def load_drafter(
    options: Mapping[str, Any], progress: Progress, *, model: LoadedModel
) -> LoadedModel:
    """Raises StartupError for one that cannot draft for `model`."""

    def told(text: str, share: float | None) -> None:
        progress(f"drafter: {text}", share)

    drafter = load_model({**options, "train_window": 0, "fuse_projections": "off"}, told)
    if not can_trim_prompt_cache(make_prompt_cache(drafter.network)):
        raise StartupError(
            f"draft.path: {drafter.folder} cannot draft: its state cannot be taken back a token"
        )
    if words_of(drafter.tokenizer_file) != words_of(model.tokenizer_file):
        raise StartupError(
            f"draft.path: {drafter.folder} has other tokens than {model.folder}; a drafter needs "
            "the very same tokenizer"
        )
    return drafter
