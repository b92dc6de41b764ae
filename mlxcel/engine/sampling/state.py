"""What samplers remember of a row from token to token, on the device beside the history.

Two numbers a row: mirostat its running bound and 0, adaptive-p its two sums, all others 0.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling.adaptive import initial_sums, is_adaptive
from mlxcel.engine.sampling.mirostat import initial_bound, is_mirostat

WIDTH = 2


def initial_state(params: SamplingParams) -> tuple[float, float]:
    """Before the first draw of a row."""
    if params.mirostat is not None and is_mirostat(params):
        return initial_bound(params.mirostat), 0.0
    if params.adaptive is not None and is_adaptive(params):
        return initial_sums(params.adaptive)
    return 0.0, 0.0


def remembers(params: SamplingParams) -> bool:
    """Whether a draw changes what the next one begins with."""
    is_steady = params.mirostat is None or not is_mirostat(params)
    return not is_steady or (params.adaptive is not None and is_adaptive(params))


class RowState:
    """Owned by the decode loop: `values` float32 `[rows, 2]`. Row i belongs to place i."""

    def __init__(self) -> None:
        self.values = mx.zeros((0, WIDTH))

    def join(self, values: Sequence[float]) -> None:
        """A row with the state it begins with, or had when it left."""
        row = mx.array([list(values)], dtype=mx.float32)
        self.values = mx.concatenate([self.values, row])

    def leave(self, place: int) -> None:
        """The last row moves into the place, as it does in the KV batch."""
        last = self.values.shape[0] - 1
        if last == 0:
            self.values = mx.zeros((0, WIDTH))
            return
        order = [last if i == place else i for i in range(last)]
        self.values = self.values[mx.array(order)]

    def take(self, values: mx.array) -> None:
        """What a step has left behind (`Drawn.state`)."""
        self.values = values

    def put(self, place: int, values: mx.array) -> None:
        """`[1, 2]`, of one row."""
        self.values[place : place + 1] = values

    def row(self, place: int) -> tuple[float, float]:
        """Read from the device, which may have to be waited for: to preempt a row."""
        first, second = cast(list[float], self.values[place].tolist())
        return first, second
