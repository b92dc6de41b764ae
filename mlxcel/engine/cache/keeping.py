"""The two ways KV is kept, as one protocol: by columns, or as the whole state of a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache.counters import SnapshotNumbers, StoreNumbers
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.look import Look
from mlxcel.engine.cache.spill import Fetch
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.prompt import Reading

EVALUATION_ERRORS = (RuntimeError, ValueError, MemoryError)
"""What making a copy raises, as when memory is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """How full it is."""

    store: StoreNumbers = field(default_factory=StoreNumbers)
    snapshots: SnapshotNumbers = field(default_factory=SnapshotNumbers)
    disk: Mapping[str, Any] | None = None


class Keeping(Protocol):
    """Owned by the tick. What is kept is a copy; nothing is waited for before `end_turn`."""

    @property
    def nbytes(self) -> int: ...

    @property
    def entries(self) -> int: ...

    def look(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> Look:
        """Changes nothing, not even the order of use."""
        ...

    def length(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> int:
        """Of a look that nobody is told of."""
        ...

    def fetch(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> Fetch | None:
        """Begin to bring what is kept of a prompt on disk; None: nothing worth it is there."""
        ...

    def computed(self, tokens: int, seconds: float) -> None:
        """So much of a prompt was read by the model: what a fetch has to be faster than."""
        ...

    def fetched(self, fetch: Fetch) -> int:
        """It was read; returns the tokens that came."""
        ...

    def adopt(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> Look:
        """Gives a cold prompt a copy of what is kept of it."""
        ...

    def count(self, tokens: int, look: Look) -> None:
        """A prompt of so many tokens was looked up, once and for all."""
        ...

    def stop(self, tag: CacheTag, prompt: Reading) -> int:
        """Where prefill has to stop so that the state there can be kept; 0: nowhere."""
        ...

    def keep_prompt(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> None:
        """All that was read of it so far."""
        ...

    def keep_row(self, key: CacheKey, tokens: Sequence[int], kv: KVBatch, place: int) -> None:
        """The row at `place`, which has read exactly these tokens, is about to leave."""
        ...

    def begin_turn(self) -> None: ...

    def end_turn(self, *, is_idle: bool) -> None:
        """Wait for what was kept before this turn, idle for everything, and drop what turns out
        not to be there. What was kept in this turn may rest on a step that still runs: waiting
        for that would keep the next one from being started. Raises nothing."""
        ...

    def distrust(self) -> None:
        """A step has failed: what was kept and not waited for may rest on it."""
        ...

    def fit(self, limit_bytes: int) -> None: ...

    def reset(self) -> tuple[int, int]:
        """Forgets everything; bytes and entries there were."""
        ...

    def numbers(self) -> Numbers: ...

    def check(self) -> None: ...

    def close(self) -> None: ...
