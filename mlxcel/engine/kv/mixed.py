"""KV of models that attend to every token in some layers and keep another state in the rest, where
the former keep their KV in a form of its own (KV modes)."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlxcel.engine.kv.library import LibraryKV, SoloKV
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV


class MixedKV:
    """Two batches side by side; the row in a place of one is the row in that place of the other.
    A row's state is in no form that a snapshot knows."""

    keeps_columns = False
    can_rewind = False
    can_replay = False

    def __init__(
        self, attending: RaggedKV, rest: LibraryKV | SoloKV, attends: Sequence[bool]
    ) -> None:
        """`attends`: which layers are of the former kind."""
        self._attending = attending
        self._rest = rest
        self._attends = attends

    @property
    def label(self) -> str:
        return f"{self._attending.label} where layers attend, {self._rest.label} elsewhere"

    @property
    def layers(self) -> list[Any]:
        if not len(self):
            return []
        own, rest = iter(self._attending.layers), iter(self._rest.layers)
        return [next(own if attends else rest) for attends in self._attends]

    def __len__(self) -> int:
        return len(self._attending)

    @property
    def nbytes(self) -> int:
        return self._attending.nbytes + self._rest.nbytes

    def join(self, prefilled: Prefilled, index: int = 0) -> None:
        both = list(zip(prefilled.caches, self._attends, strict=True))
        own = [cache for cache, attends in both if attends]
        rest = [cache for cache, attends in both if not attends]
        self._attending.join(Prefilled(own, prefilled.lengths), index)
        self._rest.join(Prefilled(rest, prefilled.lengths), index)

    def leave(self, place: int) -> None:
        self._attending.leave(place)
        self._rest.leave(place)

    def seen(self, place: int, start: int, stop: int) -> tuple[mx.array, mx.array]:
        last = self._attending if self._attends[-1] else self._rest
        return last.seen(place, start, stop)

    def begin(self) -> None:
        self._attending.begin()
        self._rest.begin()

    def advance(self) -> None:
        self._attending.advance()
        self._rest.advance()

    def check(self) -> None:
        """Our own invariants, for tests."""
        assert len(self._attending) == len(self._rest)
        self._attending.check()
        self._rest.check()
