"""The parts of a target that its drafters use: embedding, head, layers, final norm.

mlx-lm's families agree on the names but not on the depth: `model.layers` in a plain family,
`language_model.model.layers` in one that sees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxcel.core.errors import StartupError


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """All of it is the target's own: nothing is copied, quantised weights stay as they are."""

    layers: list[nn.Module]
    norm: nn.Module
    """What the head reads has gone through it."""
    embed: Callable[[mx.array], mx.array]
    """int32 `[...]` -> `[..., hidden]`."""
    head: Callable[[mx.array], mx.array]
    """`[..., hidden]` -> `[..., vocab]`."""


def target_of(network: nn.Module) -> Target:
    """Raises StartupError for a network that is built otherwise."""
    for path, module in network.named_modules():
        if _is_body(module):
            owner = _at(network, path.rpartition(".")[0])
            return Target(
                layers=module.layers,
                norm=module.norm,
                embed=module.embed_tokens,
                head=_head(owner, module),
            )
    raise StartupError(
        f"draft: {type(network).__module__} shows neither layers nor a final norm to draft from"
    )


def _is_body(module: nn.Module) -> bool:
    return all(name in module for name in ("layers", "norm", "embed_tokens"))


def _at(network: nn.Module, path: str) -> nn.Module:
    found: Any = network
    for name in path.split(".") if path else ():
        found = found[int(name)] if name.isdigit() else getattr(found, name)
    module: nn.Module = found
    return module


def _head(owner: nn.Module, body: nn.Module) -> Callable[[mx.array], mx.array]:
    if "lm_head" in owner:
        head: Callable[[mx.array], mx.array] = owner.lm_head
        return head
    tied: Callable[[mx.array], mx.array] = body.embed_tokens.as_linear
    return tied
