"""A prompt on its way into KV, and the rows that will decode from it."""

from dataclasses import dataclass
from typing import Protocol

from mlxcel.core.request import Lane
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.request import Request
from mlxcel.engine.sequence import Sequence


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
