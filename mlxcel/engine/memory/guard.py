"""Refuses a request that alone would not fit into memory, before anything is computed for it."""

from mlxcel.core.errors import RequestMemoryExceeded
from mlxcel.engine.memory.estimate import request_bytes
from mlxcel.weights.card import MemoryCard


class RequestGuard:
    """`budget_bytes` None: nothing is refused. `chunk` and `cap` as of `request_bytes`."""

    def __init__(
        self, budget_bytes: int | None, card: MemoryCard, chunk: int, *, cap: int = 0
    ) -> None:
        self._budget = budget_bytes
        self._card = card
        self._chunk = chunk
        self._cap = cap

    def check(self, prompt: int, planned: int) -> None:
        """Tokens of the prompt, and of the answer at most. Raises RequestMemoryExceeded."""
        if self._budget is None:
            return
        needed = request_bytes(self._card, prompt, planned, self._chunk, cap=self._cap)
        if needed > self._budget:
            raise RequestMemoryExceeded(needed, self._budget)
