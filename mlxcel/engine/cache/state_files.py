"""A whole state as the arrays of one file, and back.

The first array is text: what the state consists of, as JSON, with a number where an array stands.
The arrays follow in that order, each a layer of its own. A file is believed as far as its digest
goes; that it names no class but those of the loaded model is checked here.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList

from mlxcel.engine.cache.disk.arrays import STORED
from mlxcel.engine.cache.segment import Layers
from mlxcel.engine.cache.snapshots import Origin
from mlxcel.engine.cache.states import PLAIN, Kept, State

HOME = "mlx_lm.models."
"""Where classes of caches live."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of caches, and the names of its fields."""

    made: type
    fields: frozenset[str]


Kinds = Mapping[str, Kind]
"""What a state may consist of, by module and name of the class."""


class NotAState(ValueError):
    """What a file holds, or was to hold, is no state of this model."""


def kinds_of(caches: list[Any]) -> Kinds:
    """Of the caches of a row that has read nothing; of other modules than mlx-lm's: none."""
    kinds = {
        _name(type(cache)): Kind(type(cache), frozenset(vars(cache))) for cache in _all(caches)
    }
    return {name: kind for name, kind in kinds.items() if name.startswith(HOME)}


def layout_of(caches: list[Any]) -> str:
    """16 hex digits, equal for caches of the same classes, windows and fields: the weights alone
    do not tell them. Of the caches of a row that has read nothing."""
    told = json.dumps([_shape(cache) for cache in caches])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def check_kinds(caches: Iterable[Kept], kinds: Kinds) -> None:
    """Raises NotAState where they are not what this model's caches consist of."""
    for kept in caches:
        name = _name(kept.kind)
        if name not in kinds or kinds[name].fields != set(kept.fields):
            raise NotAState(f"{name} with fields {sorted(kept.fields)} is no cache of this model")
        if kept.kind is CacheList:
            check_kinds(kept.fields["caches"], kinds)


def packed_state(state: State, origin: str) -> Layers:
    """Nothing is copied but the text. Raises NotAState where an array is of a type that files do
    not have."""
    arrays: list[mx.array] = []
    caches = [_packed(kept, arrays) for kept in state.caches]
    for array in arrays:
        if str(array.dtype).removeprefix("mlx.core.") not in STORED:
            raise NotAState(f"arrays of {array.dtype} are not stored")
    raw = json.dumps({"origin": origin, "caches": caches}).encode()
    text = mx.array(np.frombuffer(raw, np.uint8)).reshape(1, 1, -1, 1)
    return ((text,), *((array,) for array in arrays))


def unpacked_state(layers: Layers, position: int, kinds: Kinds) -> tuple[State, Origin]:
    """Raises NotAState, saying what is wrong."""
    if not layers or any(len(layer) != 1 for layer in layers) or layers[0][0].dtype != mx.uint8:
        raise NotAState("it does not begin with the text of a state")
    (text,), arrays = layers[0], [array for (array,) in layers[1:]]
    try:
        told = json.loads(np.array(text).tobytes())
        origin = Origin(told["origin"])
        caches = tuple(_unpacked_cache(tree, arrays, kinds) for tree in told["caches"])
        check_kinds(caches, kinds)
        _check_offsets(caches, position)
    except NotAState:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as why:
        raise NotAState(f"its text cannot be read: {why!r}") from why
    return State(caches, position), origin


def _unpacked_cache(tree: Any, arrays: list[mx.array], kinds: Kinds) -> Kept:
    kind = kinds.get(tree["kind"])
    if kind is None:
        raise NotAState(f"{tree['kind']!r} is no class of this model's caches")
    fields = {name: _unpacked(value, arrays, kinds) for name, value in tree["fields"].items()}
    return Kept(kind.made, fields)


def _unpacked(tree: Any, arrays: list[mx.array], kinds: Kinds) -> Any:
    match tree:
        case {"array": place}:
            return arrays[place]
        case {"kind": _}:
            return _unpacked_cache(tree, arrays, kinds)
        case {"list": items}:
            return [_unpacked(item, arrays, kinds) for item in items]
        case {"tuple": items}:
            return tuple(_unpacked(item, arrays, kinds) for item in items)
        case _ if isinstance(tree, PLAIN):
            return tree
    raise NotAState(f"its text has a {type(tree).__name__} where a value stands")


def _check_offsets(caches: Iterable[Kept], position: int) -> None:
    for kept in caches:
        if kept.kind is CacheList:
            _check_offsets(kept.fields["caches"], position)
        elif (offset := kept.fields.get("offset", 0)) not in (0, position):
            raise NotAState(f"a cache counts {offset!r} tokens where the file has {position}")


def _packed(tree: Any, arrays: list[mx.array]) -> Any:
    match tree:
        case Kept():
            fields = {name: _packed(value, arrays) for name, value in tree.fields.items()}
            return {"kind": _name(tree.kind), "fields": fields}
        case mx.array():
            arrays.append(tree)
            return {"array": len(arrays) - 1}
        case list():
            return {"list": [_packed(item, arrays) for item in tree]}
        case tuple():
            return {"tuple": [_packed(item, arrays) for item in tree]}
    return tree  # plain, as `taken` has seen to


def _shape(cache: Any) -> Any:
    if type(cache) is CacheList:
        return [_name(CacheList), [_shape(part) for part in cache.caches]]
    fields = sorted(vars(cache).items())
    return [_name(type(cache)), [(name, v) for name, v in fields if isinstance(v, PLAIN)]]


def _all(caches: Iterable[Any]) -> Iterator[Any]:
    for cache in caches:
        yield cache
        if type(cache) is CacheList:
            yield from _all(cache.caches)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
