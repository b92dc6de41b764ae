"""What Hydra makes of the files in `conf/` and `recipes/`, remembered: reading them takes 0.4 s of
a test, and they stand still."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlxcel.config import layers
from mlxcel.config.paths import data_dir

Read = Callable[[Sequence[str], Sequence[Path], Mapping[str, Path]], Any]


def read_once(read: Read) -> Read:
    """A function of `layers` that does the same. What a test brings files to of its own is read
    each time."""
    known: dict[object, bytes] = {}

    def read_or_known(
        words: Sequence[str], search: Sequence[Path], recipes: Mapping[str, Path]
    ) -> Any:
        if tuple(search) != layers.search_path(()) or not _are_shipped(recipes):
            return read(words, search, recipes)
        asked = (tuple(words), tuple(recipes.items()))
        if asked not in known:
            known[asked] = pickle.dumps(read(words, search, recipes))
        return pickle.loads(known[asked])

    return read_or_known


def file_read_once(load: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Hydra's reader of one file, which parses the same file anew for every tree."""
    known: dict[object, bytes] = {}

    def load_or_known(source: Any, config_path: str) -> Any:
        path = Path(source.path, source._normalize_file_name(config_path))
        if not path.is_file():
            return load(source, config_path)
        found = path.stat()
        asked = (source.provider, path, found.st_mtime_ns, found.st_size, found.st_ino)
        if asked not in known:
            known[asked] = pickle.dumps(load(source, config_path))
        return pickle.loads(known[asked])

    return load_or_known


def _are_shipped(recipes: Mapping[str, Path]) -> bool:
    return all(path.is_relative_to(data_dir("recipes")) for path in recipes.values())
