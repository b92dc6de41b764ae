"""What the decode loop asks of a batch's KV state."""

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from mlxcel.engine.cache.segment import Layers
from mlxcel.engine.kv.prefilled import Prefilled


class KVBatch(Protocol):
    """The KV state of the rows in places 0..n-1."""

    @property
    def label(self) -> str:
        """How rows decode, for the log."""
        ...

    @property
    def keeps_columns(self) -> bool:
        """Whether a row's KV can be cut by positions (`KVColumns`), or is a state that stands
        where it stands (`KVStates`)."""
        ...

    @property
    def layers(self) -> list[Any]:
        """Given to the model as its `cache`."""
        ...

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

    @property
    def can_rewind(self) -> bool:
        """Whether it is a `KVRewinding`."""
        ...

    @property
    def can_replay(self) -> bool:
        """Whether it is a `KVReplaying`."""
        ...

    def seen(self, place: int, start: int, stop: int) -> tuple[mx.array, mx.array]:
        """Keys and values `[1, heads, stop - start, dim]` that the last layer has of a row's
        positions, where that layer holds them all."""
        ...

    def check(self) -> None: ...


class KVColumns(KVBatch, Protocol):
    def extract(self, place: int, start: int, stop: int) -> Layers:
        """Copies of the KV of a row's positions start..stop, not evaluated."""
        ...

    def has_dropped(self, place: int) -> bool:
        """Whether a cap has cost the row its oldest positions: it cannot be extracted."""
        ...


class KVRewinding(KVBatch, Protocol):
    """Rows can be given several positions at once, of which they keep the first few."""

    def begin(self, span: int = 1) -> None: ...

    def advance(self, kept: Sequence[int] | None = None) -> None:
        """`kept`: of each row, how many of its `span` positions; None: one."""
        ...


class KVReplaying(KVBatch, Protocol):
    """A lone row can be taken back to where it was, and read again from there."""

    def mark(self) -> None:
        """Before a step that may have to be taken back."""
        ...

    def back(self) -> None:
        """To where it was marked."""
        ...


class KVStates(KVBatch, Protocol):
    def states(self, place: int) -> list[Any]:
        """The row's caches, of the model's own kinds. They may share memory with the batch."""
        ...
