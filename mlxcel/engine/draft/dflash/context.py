"""Keys and values of what a layer has read of the target. Those of a block are never kept.

`offset` counts positions, also those whose rows are gone: RoPE goes by it.
"""

from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from mlxcel.engine.kv.steady import SteadyKVCache, room, steady
from mlxcel.weights.load import current_backend

Pair = tuple[mx.array, mx.array]
"""Keys and values, each `[1, heads, n, head_dim]`."""


class Context(Protocol):
    """Of one layer and one row."""

    @property
    def offset(self) -> int: ...

    def skip(self, count: int) -> int:
        """How many of the next `count` positions nobody will look at: they count as read."""
        ...

    def append(self, keys: mx.array, values: mx.array) -> None: ...

    def beside(self, keys: mx.array, values: mx.array) -> Pair:
        """The context and a block behind it."""
        ...

    def mask(self, count: int) -> mx.array | None:
        """Which columns of that a block of `count` positions sees; None: all."""
        ...

    @property
    def arrays(self) -> list[mx.array]: ...


class Whole:
    """Of a layer that looks at everything."""

    def __init__(self) -> None:
        self._kv: Any = steady([KVCache()], current_backend())[0]

    @property
    def offset(self) -> int:
        return int(self._kv.offset)

    def skip(self, count: int) -> int:
        return 0

    def append(self, keys: mx.array, values: mx.array) -> None:
        self._kv.update_and_fetch(keys, values)

    def beside(self, keys: mx.array, values: mx.array) -> Pair:
        """Written behind the context and given up at once: nothing of a long one is copied."""
        found: Pair = self._kv.update_and_fetch(keys, values)
        self._kv.trim(keys.shape[2])
        return found

    def mask(self, count: int) -> mx.array | None:
        """Positions of a block see each other: all that is not room for more."""
        if not isinstance(self._kv, SteadyKVCache):
            return None
        last = self.offset + count
        return mx.arange(room(last))[None] < last

    @property
    def arrays(self) -> list[mx.array]:
        return [self._kv.keys, self._kv.values]


class Window:
    """Of a layer that looks at the last `window` positions, the one that asks among them."""

    def __init__(self, window: int) -> None:
        self.offset = 0
        self._most = window - 1
        self._held: Pair | None = None

    def skip(self, count: int) -> int:
        skipped = max(0, count - self._most)
        self.offset += skipped
        return skipped

    def append(self, keys: mx.array, values: mx.array) -> None:
        self.offset += keys.shape[2]
        joined, more = self.beside(keys, values)
        first = max(0, joined.shape[2] - self._most)
        self._held = joined[:, :, first:], more[:, :, first:]

    def beside(self, keys: mx.array, values: mx.array) -> Pair:
        if self._held is None:
            return keys, values
        old, older = self._held
        return mx.concatenate([old, keys], axis=2), mx.concatenate([older, values], axis=2)

    def mask(self, count: int) -> mx.array | None:
        return None

    @property
    def arrays(self) -> list[mx.array]:
        return list(self._held) if self._held is not None else []
