"""The whole state of one row at an exact position, for families whose caches are more than
columns of tokens: windows, recurrent state, lists of caches.

A state shares nothing that is written: mlx-lm's caches assign to slices of their arrays, which
changes the array object for everybody who holds it, so each side gets objects of its own. The
memory behind them is shared until one side writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, ChunkedKVCache, KVCache, RotatingKVCache

PLAIN = (type(None), bool, int, float, str)
"""Values that are never changed in place."""


class NotKept(ValueError):
    """The caches do not hold what a state needs; the row itself is fine."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One cache: its class, and its fields by name. Windows are in the order of time."""

    kind: type
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Immutable: it is handed to a model by `restored` alone."""

    caches: tuple[Kept, ...]
    position: int
    """Tokens that were read."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[mx.array]:
        """All there are, for whoever evaluates them."""
        return [array for kept in self.caches for array in _arrays(kept)]


def taken(caches: list[Any], position: int) -> State:
    """A copy of the caches of one row that has read `position` tokens, not evaluated.

    NotKept where a cache counted other tokens, has lost some of its window, or holds something
    that cannot be copied.
    """
    return State(tuple(_kept(cache, position) for cache in caches), position)


def restored(state: State) -> list[Any]:
    """Caches that go on from the state; writing into them leaves it as it is."""
    return [_restored(kept) for kept in state.caches]


def cut(state: State, position: int) -> State | None:
    """The state as it was at an earlier position, where every cache still holds what it needs
    for that. Its arrays are views of the whole: restore it, do not keep it."""
    if position == state.position:
        return state
    if not 0 < position < state.position:
        return None
    caches = []
    for kept in state.caches:
        shorter = _cut(kept, position)
        if shorter is None:
            return None
        caches.append(shorter)
    return State(tuple(caches), position)


# Taking.


def _kept(cache: Any, position: int) -> Kept:
    if type(cache) is CacheList:
        return Kept(CacheList, {"caches": tuple(_kept(part, position) for part in cache.caches)})
    fields = _live(cache, position)
    return Kept(type(cache), {name: _copied(value, name) for name, value in fields.items()})


def _live(cache: Any, position: int) -> dict[str, Any]:
    """The fields of a cache, without the room it has in reserve. A class we do not know is kept
    as it is: more than is needed, perhaps, but all of it."""
    fields = dict(getattr(cache, "__dict__", {}))
    offset = fields.get("offset", 0)
    if isinstance(offset, int) and offset not in (0, position):  # 0: a cache that is not used
        raise NotKept(f"{type(cache).__name__} counts {offset} tokens where {position} were read")
    if fields.get("keys") is None:
        return fields
    if type(cache) is KVCache:
        return _columns(fields, cache.offset)
    if type(cache) is ChunkedKVCache:
        return _columns(fields, cache.offset - cache.start_position)
    if type(cache) is RotatingKVCache:
        return _window(cache, fields)
    return fields


def _window(cache: RotatingKVCache, fields: dict[str, Any]) -> dict[str, Any]:
    """In the order of time, as the class itself stores it before it reads a prompt on. After a
    chunk it holds up to a chunk more than its window, which the next token does not see."""
    columns = min(cache.offset, cache.max_size)
    ordered = {}
    for name in ("keys", "values"):
        array = cache._temporal_order(fields[name])
        if array.shape[2] < columns:
            raise NotKept(f"a window of {columns} tokens holds {array.shape[2]}")
        ordered[name] = cache._trim(array.shape[2] - columns, array)
    return fields | ordered | {"_idx": columns}


def _copied(value: Any, name: str) -> Any:
    match value:
        case mx.array():
            return mx.contiguous(value)
        case list():
            return [_copied(item, name) for item in value]
        case tuple():
            return tuple(_copied(item, name) for item in value)
        case _ if isinstance(value, PLAIN):
            return value
    raise NotKept(f"{name} is {type(value).__name__}, which cannot be kept")


# Restoring.


def _restored(tree: Any) -> Any:
    match tree:
        case Kept():
            made: Any = object.__new__(tree.kind)
            vars(made).update({name: _restored(field) for name, field in tree.fields.items()})
            return made
        case mx.array():
            return tree[...]  # another object: slice assignment changes the one it is done to
        case list():
            return [_restored(item) for item in tree]
        case tuple():
            return tuple(_restored(item) for item in tree)
    return tree


def _arrays(tree: Any) -> Iterator[mx.array]:
    match tree:
        case Kept():
            yield from _arrays(list(tree.fields.values()))
        case mx.array():
            yield tree
        case list() | tuple():
            for item in tree:
                yield from _arrays(item)


# Cutting.


def _cut(kept: Kept, position: int) -> Kept | None:
    fields = kept.fields
    if kept.kind is CacheList:
        parts = [_cut(part, position) for part in fields["caches"]]
        return None if None in parts else replace(kept, fields={"caches": tuple(parts)})
    if kept.kind not in (KVCache, RotatingKVCache, ChunkedKVCache):
        return None
    if fields["keys"] is None:
        return kept
    first = _first_needed(kept, position)
    if first is None:
        return None
    shorter = _columns(fields, position - first) | {"offset": position}
    if kept.kind is RotatingKVCache:
        shorter["_idx"] = position
    return replace(kept, fields=shorter)


def _first_needed(kept: Kept, position: int) -> int | None:
    """The position of column 0, where that is early enough for the token at `position`."""
    fields = kept.fields
    if kept.kind is RotatingKVCache:
        return 0 if fields["offset"] <= fields["max_size"] else None
    if kept.kind is ChunkedKVCache:
        start: int = fields["start_position"]
        begun = position - position % fields["chunk_size"]
        return start if start <= begun and start < position else None
    return 0


def _columns(fields: dict[str, Any], columns: int) -> dict[str, Any]:
    return fields | {name: fields[name][:, :, :columns] for name in ("keys", "values")}
