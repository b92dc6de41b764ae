"""What Hydra makes of the files in `conf/` and `recipes/`, remembered: reading them takes 0.4 s of
a test, and they stand still."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from mlxcel.config import layers
from mlxcel.config.paths import data_dir

Read = Callable[[Sequence[str], Sequence[Path], Mapping[str, Path]], Any]


def read_once(read: Read) -> Read:
    """A function of `layers` that does the same. What a test brings files to of its own is read
    each time."""
    known: dict[object, Any] = {}

    def read_or_known(
        words: Sequence[str], search: Sequence[Path], recipes: Mapping[str, Path]
    ) -> Any:
        if tuple(search) != layers.search_path(()) or not _are_shipped(recipes):
            return read(words, search, recipes)
        asked = (tuple(words), tuple(recipes.items()))
        if asked not in known:
            known[asked] = read(words, search, recipes)
        return deepcopy(known[asked])

    return read_or_known


def _are_shipped(recipes: Mapping[str, Path]) -> bool:
    return all(path.is_relative_to(data_dir("recipes")) for path in recipes.values())
