"""What the decode loop asks of a batch's KV state."""

from typing import Any, Protocol

from mlxcel.engine.kv.prefilled import Prefilled


class KVBatch(Protocol):
    """The KV state of the rows in places 0..n-1."""

    @property
    def label(self) -> str:
        """How rows decode, for the log."""
        ...

    layers: list[Any]
    """Given to the model as its `cache`."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def join(self, prefilled: Prefilled, index: int = 0) -> None:
        """Row `index` of what was read takes the next free place. It is a copy: the same row
        may join again, and what happens to one of them does not show in the other."""
        ...

    def leave(self, place: int) -> None:
        """Free a place; the last row moves into it."""
        ...

    def begin(self) -> None: ...

    def advance(self) -> None: ...

    def check(self) -> None: ...
