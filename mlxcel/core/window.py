"""How the context is divided among the slots, and what bounds one of them. Counts are tokens."""

from collections.abc import Mapping
from typing import Any


def slot_count(scheduler: Mapping[str, Any]) -> int:
    """Rows that run together, among which the context is divided; `scheduler` is that section
    of the tree. One row has all of it."""
    if scheduler["no_batch"]:
        return 1
    width: int | None = scheduler["max_batch_size"]
    rows: int = scheduler["parallel"]
    return rows if width is None else width


def slot_share(ctx_size: int, slots: int) -> int:
    """What each slot gets of `limits.ctx_size`; 0: the model's own window."""
    return ctx_size // slots


def effective_window(share: int, train_window: int) -> int:
    """What a prompt and its answer may hold together; 0: unbounded."""
    return share if share > 0 else train_window
