"""A prompt on its way into KV, and the rows that will decode from it."""

import time
from dataclasses import dataclass
from typing import Protocol

from mlxcel.core.request import Lane
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.request import Request, cached_tokens
from mlxcel.engine.sequence import Sequence
from mlxcel.link.messages import RowProgress


class Reading(Protocol):
    """Tokens on their way into KV, whoever they are for."""

    tokens: tuple[int, ...]
    computed: int
    kv: Prefilled | None
    index: int
    stop: int

    @property
    def lora(self) -> tuple[float, ...]: ...


@dataclass(slots=True, eq=False)
class Prompt:
    """Mutable, owned by the tick. A row that was preempted comes back as a prompt of its own,
    its answer so far included."""

    request: Request
    tokens: tuple[int, ...]
    rows: list[Sequence]
    """Those that have not joined the batch."""
    computed: int = 0
    """Tokens that are in the KV. The last one never is: its forward is the rows' first step."""
    kv: Prefilled | None = None
    index: int = 0
    """The prompt's row in `kv`."""
    stop: int = 0
    """A place at which prefill stops once, so that the state there can be kept; 0: none."""
    is_scored: bool = False
    """RowPrompt tells how likely its tokens are. As `tells_progress`, not of one that is read
    again."""
    tells_progress: bool = False
    """RowProgress tells how far it is."""

    @property
    def lane(self) -> Lane:
        return self.request.submit.lane

    @property
    def lora(self) -> tuple[float, ...]:
        return self.request.lora

    @property
    def is_cold(self) -> bool:
        return self.kv is None

    @property
    def is_ready(self) -> bool:
        """All of it is in the KV; the rows may join."""
        return self.kv is not None and self.computed >= len(self.tokens) - 1

    def progress(self, processed: int) -> RowProgress:
        """Of a prompt that has begun to be read."""
        request = self.request
        cached = cached_tokens(request.cache)
        return RowProgress(
            id=request.id,
            total=len(self.tokens),
            cached=0 if cached is None else cached,
            processed=processed,
            took_ms=(time.monotonic() - request.first_prefill_s) * 1e3,
        )
