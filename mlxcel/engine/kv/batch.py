"""What the decode loop asks of a batch's KV state."""

from typing import Any, Protocol

import mlx.core as mx


class RowCache(Protocol):
    """One layer of one prefilled row, as mlx-lm makes it."""

    keys: mx.array
    values: mx.array
    offset: int


class KVBatch(Protocol):
    """The KV state of the rows in places 0..n-1."""

    layers: list[Any]
    """Given to the model as its `cache`."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def join(self, row: list[Any]) -> None: ...

    def leave(self, place: int) -> None: ...

    def begin(self) -> None: ...

    def advance(self) -> None: ...

    def check(self) -> None: ...
