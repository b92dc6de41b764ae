"""The one place that talks to Hydra: groups, options, and the files a choice is made of.

Hydra keeps its state in the process, so every use holds one lock and leaves nothing behind.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mlxcel.config.paths import data_dir

if TYPE_CHECKING:
    from omegaconf import DictConfig

RECIPES = "recipes"
ROOT = "config"

_lock = threading.Lock()
_appended: list[Path] = []
_prepended: list[Path] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One file of the composed tree, and the dotted key it was put under ("" is the root)."""

    name: str
    package: str


@cache
def groups() -> tuple[str, ...]:
    """The groups there are, in the order of `conf/config.yaml`."""
    defaults = _yaml(data_dir("conf") / f"{ROOT}.yaml")["defaults"]
    return tuple(name for entry in defaults if isinstance(entry, dict) for name in entry)


def search_path(user: Sequence[Path]) -> tuple[Path, ...]:
    """Folders that hold group folders; the first hit wins. `recipes` is a group of the last."""
    return (*user, data_dir("conf"), data_dir("recipes").parent)


def options(group: str, search: Sequence[Path]) -> list[str]:
    """What may be chosen in a group; a leading underscore marks a fragment."""
    names = {file.stem for folder in search for file in (folder / group).glob("*.yaml")}
    return sorted(name for name in names if not name.startswith("_"))


def find(name: str, search: Sequence[Path]) -> Path | None:
    """The file that `model/qwen3` means."""
    files = (folder / f"{name}.yaml" for folder in search)
    return next((file for file in files if file.is_file()), None)


def composed(
    words: Sequence[str], search: Sequence[Path], recipes: Mapping[str, Path]
) -> tuple["DictConfig", dict[str, str]]:
    """The tree of these group choices, and the option each group came to."""
    from hydra import compose
    from omegaconf import open_dict

    with _hydra(search, recipes):
        tree = compose(ROOT, overrides=list(words), return_hydra_config=True)
        chosen = dict(tree.hydra.runtime.choices)
        with open_dict(tree):
            del tree["hydra"]
    known = groups()
    return tree, {group: str(chosen[group]) for group in known if chosen.get(group) is not None}


def layers(
    words: Sequence[str], search: Sequence[Path], recipes: Mapping[str, Path]
) -> list[Layer]:
    """The files of these group choices, in the order in which they were merged."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    with _hydra(search, recipes):
        loader = GlobalHydra.instance().config_loader()
        found = loader.compute_defaults_list(ROOT, list(words), RunMode.RUN).defaults
    named = ((str(one.config_path), str(one.package)) for one in found if one.config_path)
    return [Layer(name=n, package=p) for n, p in named if not n.startswith("hydra/")]


@contextmanager
def _hydra(search: Sequence[Path], recipes: Mapping[str, Path]) -> Iterator[None]:
    from hydra import initialize_config_dir

    with _lock:
        conf = data_dir("conf")
        at = list(search).index(conf)
        _prepended[:], _appended[:] = search[:at], search[at + 1 :]
        _register_search_path()
        for name, path in recipes.items():
            _store_recipe(name, path)
        with initialize_config_dir(str(conf), version_base="1.3"):
            yield


@cache
def _register_search_path() -> None:
    """Our folders, by plugin: Hydra's own `hydra.searchpath` is unknown to its loader later."""
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class MlxcelSearchPath(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            for folder in reversed(_prepended):
                search_path.prepend("user", f"file://{folder}")
            for folder in _appended:
                search_path.append("mlxcel", f"file://{folder}")

    Plugins.instance().register(MlxcelSearchPath)


def _store_recipe(name: str, path: Path) -> None:
    """A file from anywhere as an option of `recipes`; its defaults list stays in force."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    ConfigStore.instance().store(
        group=RECIPES,
        name=name,
        node=OmegaConf.load(path),
        package=_package(path),
        provider=str(path),
    )


def _package(path: Path) -> str:
    """What the file's header says; a recipe is laid on the root of the tree."""
    for line in path.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            break
        if line.lstrip("# ").startswith("@package"):
            return line.split("@package", 1)[1].strip()
    return "_global_"


def _yaml(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
