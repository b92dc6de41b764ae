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

NORMS = ("norm", "final_layernorm", "embedding_norm", "norm_f")
EMBEDDINGS = ("embed_tokens", "embeddings")


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
        norm, embed = _named(module, NORMS), _named(module, EMBEDDINGS)
        if norm is not None and embed is not None and isinstance(module.get("layers"), list):
            owner = _at(network, path.rpartition(".")[0])
            head = owner.lm_head if "lm_head" in owner else embed.as_linear
            return Target(layers=module.layers, norm=norm, embed=embed, head=head)
    raise StartupError(
        f"draft: {type(network).__module__} shows neither layers nor a final norm to draft from"
    )


def _named(module: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    return next((module[name] for name in names if name in module), None)


def _at(network: nn.Module, path: str) -> nn.Module:
    found: Any = network
    for name in path.split(".") if path else ():
        found = found[int(name)] if name.isdigit() else getattr(found, name)
    module: nn.Module = found
    return module
