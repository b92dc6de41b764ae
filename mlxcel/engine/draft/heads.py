"""A drafter that is no model by itself: it reads the target's hidden states (DFlash, MTP)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.base import Drafter


class HiddenDrafter(Drafter, Protocol):
    """Of one row. Before `propose` it was told all tokens of the text (`hear`), and the context
    rows of all positions but the last (`look`)."""

    def look(self, rows: mx.array) -> None:
        """`[n, width]`: the context rows of the next n positions, in order; every position once,
        beginning with the first of the prompt. Never of a token that did not come true."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHead:
    """The part `drafter` of a worker, loaded for one target. Never leaves its thread."""

    kind: str
    """As clients are told: `dflash`, `mtp`."""
    name: str
    """Of its folder."""
    folder: Path
    network: nn.Module
    width: int
    """Numbers in a context row; even."""
    most: int
    """Tokens it proposes at once, at most."""
    taps: Sequence[int]
    """Target layers whose outputs are read; none: the output of the final norm."""
    project: Callable[[mx.array], mx.array] | None
    """`[rows, span, taps * hidden]` -> `[rows, span, width]`, the context rows."""
    make: Callable[[SamplingParams], HiddenDrafter]
    """Of one row."""
    about: dict[str, Any]
    """For the log."""
