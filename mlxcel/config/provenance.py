"""Which file, flag or variable each value of a tree came from.

Reads the files a second time, as text with line numbers; so it is done only for an error, for
`mlxcel config explain`, and for a checkpoint that brings sampling values of its own.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from mlxcel.config import layers
from mlxcel.config.asked import Composed, Origin
from mlxcel.config.keys import leaves
from mlxcel.config.paths import data_dir
from mlxcel.config.problems import MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    origin: Origin
    text: str
    """`conf/server/default.yaml:3`, or the source of a setting."""


class _Known:
    """The leaves met so far. What is below a key is kept beside them: looking through all leaves
    for each that comes would take as long as reading the files."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._below: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def put(self, key: str, place: Place, *, is_weak: bool = False) -> None:
        """A leaf takes the place of what was below it and of the leaf it is now below."""
        if is_weak and (key in self.places or self._below[key]):
            return
        for known in (key, *self._below[key], *_above(key)):
            self._drop(known)
        self.places[key] = place
        for parent in _above(key):
            self._below[parent][key] = None

    def _drop(self, key: str) -> None:
        if self.places.pop(key, None) is not None:
            for parent in _above(key):
                del self._below[parent][key]


def _above(key: str) -> Iterator[str]:
    """`a.b` and `a` of `a.b.c`."""
    while key := key.rpartition(".")[0]:
        yield key


def sources(composed: Composed) -> dict[str, str]:
    """The text of each place."""
    return {key: place.text for key, place in places(composed).items()}


def places(composed: Composed) -> dict[str, Place]:
    """Every key that holds a value, to where it was set.

    A key that a word took away is there as well, with that word."""
    known = _Known()
    files = layers.layers(composed.group_words, composed.search, composed.recipe_files)
    for layer in files:
        if path := _file_of(layer, composed):
            for key, line, node in _lines(path, layer.package):
                place = Place(origin=_origin(path), text=f"{_shown(path)}:{line}")
                known.put(key, place, is_weak=_is_weak(node))
    for setting in composed.laid:
        place = Place(origin=setting.origin, text=setting.source)
        for key, _ in leaves({setting.key: setting.value}):
            known.put(key, place)
    return known.places


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


def _origin(path: Path) -> Origin:
    return Origin.OURS if path.is_relative_to(data_dir("conf")) else Origin.FILES


def _shown(path: Path) -> str:
    """Our files from the folder that holds `conf/`, others in full, home as `~`."""
    for kind in ("conf", "recipes"):
        root = data_dir("conf" if kind == "conf" else "recipes")
        if path.is_relative_to(root):
            return f"{kind}/{path.relative_to(root).as_posix()}"
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
