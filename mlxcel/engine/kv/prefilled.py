"""KV of prompts that have been read, on its way into the batch of the rows that decode."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Prefilled:
    """One cache a layer, as the model's own kind, with one or several rows in each."""

    caches: list[Any]
    lengths: tuple[int, ...]
    """Tokens of each row; what stands behind them in a row is padding."""
