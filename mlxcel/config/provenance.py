"""Which file, flag or variable each value of a tree came from.

Reads the files a second time, as text with line numbers; so it is done for an error or for
`mlxcel config explain` alone.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import yaml

from mlxcel.config import layers
from mlxcel.config.asked import REMOVED, Composed
from mlxcel.config.paths import data_dir
from mlxcel.config.problems import MISSING


def sources(composed: Composed) -> Mapping[str, str]:
    """Every key that holds a value, to where it was set: `conf/server/default.yaml:3`.

    A key that a word took away is there as well, with that word."""
    found: dict[str, str] = {}
    files = layers.layers(composed.group_words, composed.search, composed.recipe_files)
    for layer in files:
        if path := _file_of(layer, composed):
            for key, line, node in _lines(path, layer.package):
                _put(found, key, f"{_shown(path)}:{line}", is_weak=_is_weak(node))
    for setting in composed.laid:
        if setting.value is REMOVED:
            _put(found, setting.key, setting.source)
        else:
            for key in _leaves(setting.key, setting.value):
                _put(found, key, setting.source)
    return found


def source_of(found: Mapping[str, str], key: str) -> str:
    """Where a key was set: itself, else the nearest around it, else one below it."""
    at = key.split("[", 1)[0]
    while at:
        if at in found:
            return found[at]
        below = (source for known, source in found.items() if known.startswith(f"{at}."))
        if first := next(below, ""):
            return first
        at = at.rpartition(".")[0]
    return ""


def _file_of(layer: layers.Layer, composed: Composed) -> Path | None:
    group, _, name = layer.name.rpartition("/")
    if group == layers.RECIPES and name in composed.recipe_files:
        return composed.recipe_files[name]
    return layers.find(layer.name, composed.search)


def _put(found: dict[str, str], key: str, source: str, *, is_weak: bool = False) -> None:
    """A leaf takes the place of what was below it and of the leaf it is now below."""
    if is_weak and any(known == key or known.startswith(f"{key}.") for known in found):
        return
    _clear(found, key)
    parent = key.rpartition(".")[0]
    while parent:
        found.pop(parent, None)
        parent = parent.rpartition(".")[0]
    found[key] = source


def _clear(found: dict[str, str], key: str) -> None:
    for known in [k for k in found if k == key or k.startswith(f"{key}.")]:
        del found[known]


def _leaves(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _leaves(f"{key}.{name}", below)
    else:
        yield key


@lru_cache(maxsize=256)
def _root(path: Path, _changed_ns: int) -> yaml.Node | None:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.compose(path.read_text("utf-8"), Loader=loader)


def _is_weak(node: yaml.Node) -> bool:
    """`{}` and `???` leave in place what is there already: so OmegaConf merges."""
    return isinstance(node, yaml.MappingNode) or node.value == MISSING


def _lines(path: Path, package: str) -> Iterator[tuple[str, int, yaml.Node]]:
    """Key, line and value of every leaf of a file."""
    root = _root(path, path.stat().st_mtime_ns)
    if not isinstance(root, yaml.MappingNode):
        return
    for key_node, value_node in root.value:
        if key_node.value != "defaults":
            name = f"{package}.{key_node.value}" if package else str(key_node.value)
            yield from _below(name, key_node, value_node)


def _below(key: str, key_node: yaml.Node, node: yaml.Node) -> Iterator[tuple[str, int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode) and node.value:
        for inner_key, inner in node.value:
            yield from _below(f"{key}.{inner_key.value}", inner_key, inner)
    else:
        yield key, key_node.start_mark.line + 1, node


def _shown(path: Path) -> str:
    """Our files from the folder that holds `conf/`, others in full, home as `~`."""
    for kind in ("conf", "recipes"):
        root = data_dir("conf" if kind == "conf" else "recipes")
        if path.is_relative_to(root):
            return f"{kind}/{path.relative_to(root).as_posix()}"
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
