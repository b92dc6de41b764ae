"""What a family's next-token head is to the drafter and to the loader."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from mlxcel.engine.draft.tensors import Tensors
from mlxcel.weights.load import LoadedModel

FLAT_WIDTH = 4
"""Tokens of a verify step with heads of which nothing else is known (contract: speculative 3)."""


class Head(Protocol):
    """Of all rows: what is one row's own stands in its caches."""

    def make_cache(self) -> list[Any]:
        """Empty; tokens can be taken back."""
        ...

    def __call__(self, embedded: mx.array, hidden: mx.array, caches: list[Any]) -> mx.array:
        """Pairs of a token and the hidden state before it, both `[1, n, hidden]` -> `[1, n,
        hidden]`: hidden states of the head's own, which stand for those that follow."""
        ...

    def spoken(self, hidden: mx.array) -> mx.array:
        """What the target's head makes logits of."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the heads of one kind are found, named and built."""

    model_type: str
    """Of a folder that holds nothing else."""
    targets: tuple[str, ...]
    """Model types it was trained with."""
    width: int
    """Tokens of a verify step, the row's last one among them, where nothing else says how many."""
    is_of_head: Callable[[str, LoadedModel], bool]
    """Of a tensor in the target's own checkpoint."""
    renamed: Callable[[Tensors, LoadedModel], Tensors]
    """From the names of a file to those of the network."""
    build: Callable[[LoadedModel, Tensors, Mapping[str, Any], Mapping[str, Any]], nn.Module]
    """A `Head`, with random weights, for tensors so named, the config of their folder and the
    options. What it has as `embed_tokens` or `lm_head` stands for the target's. Raises
    StartupError."""
    taps: Callable[[LoadedModel, Mapping[str, Any]], tuple[int, ...]]
    """By the options: target layers that are read; none: the output of the final norm."""
