"""A target whose hidden states are kept beside its KV, for drafters that read them.

What a drafter wants of a position stands in one more layer of the row's KV, `[1, 1, positions,
width / 2]` of keys and as much of values. So it is cut, copied, moved, rolled back, kept in the
prompt cache and on disk with the rest, by code that knows nothing of it.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from mlxcel.core.errors import StartupError
from mlxcel.engine.draft.target import target_of


class Tapped(nn.Module):
    """Called as the network itself is; its caches are those of the network and one more.

    `layers`: indices of the layers whose outputs are concatenated, in this order; none: what the
    final norm makes is taken. `project` `[rows, span, taps * hidden]` -> `[rows, span, width]`.
    """

    def __init__(
        self,
        network: nn.Module,
        layers: Sequence[int],
        project: Callable[[mx.array], mx.array] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.project = project  # a module is among the parameters: a drafter changes what is kept
        target = target_of(network)
        if outside := [index for index in layers if not 0 <= index < len(target.layers)]:
            raise StartupError(f"draft: taps layer {outside[0]} of {len(target.layers)}")
        modules = [target.layers[index] for index in layers] or [target.norm]
        self._taps = [_recording(module) for module in modules]

    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
        caches = self.make_cache() if cache is None else cache
        logits = cast(mx.array, self.network(inputs, cache=caches[:-1]))
        taken = [tap.taken() for tap in self._taps]
        seen = taken[0] if len(taken) == 1 else mx.concatenate(taken, axis=-1)
        if self.project is not None:
            seen = self.project(seen)
        caches[-1].update_and_fetch(*halves(seen))
        return logits

    def make_cache(self) -> list[Any]:
        return [*make_prompt_cache(self.network), KVCache()]


class Tap:
    """What one module has made last, until it is taken."""

    def __init__(self) -> None:
        self._made: mx.array | None = None

    def put(self, made: mx.array) -> None:
        self._made = made

    def taken(self) -> mx.array:
        made, self._made = self._made, None
        assert made is not None, "a tapped module was not called"
        return made


def halves(seen: mx.array) -> tuple[mx.array, mx.array]:
    """`[rows, span, width]` -> keys and values of one head, each `[rows, 1, span, width / 2]`."""
    half = seen.shape[-1] // 2
    return seen[:, None, :, :half], seen[:, None, :, half:]


def whole(keys: mx.array, values: mx.array) -> mx.array:
    """The other way, of one row: `[span, width]`."""
    return mx.concatenate([keys[0, 0], values[0, 0]], axis=-1)


def _recording(module: nn.Module) -> Tap:
    """The module tree stays as it is: its class alone learns to tell what it makes."""
    tap = Tap()
    plain = type(module)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = plain.__call__(self, *args, **kwargs)
        tap.put(made)
        return made

    module.__class__ = type(
        plain.__name__, (plain,), {"__call__": call, "__module__": plain.__module__}
    )
    return tap
