"""Heads that are one more layer of the target, behind its last one: GLM 4 mixtures, DeepSeek V3.

With an embedding and an output layer of their own where the file has them, else the target's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import deepseek_v3, glm4_moe, glm4_moe_lite
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache

from mlxcel.engine.draft.mtp.head import FLAT_WIDTH, Family, Tensors
from mlxcel.weights.load import LoadedModel

BLOCK = "mtp_block."
"""As folders that hold a head alone name the layer itself; in a checkpoint it has no name."""
OUTSIDE = {
    "embed_tokens": "embed_tokens",
    "enorm": "enorm",
    "hnorm": "hnorm",
    "eh_proj": "eh_proj",
    "shared_head.norm": "shared_head_norm",
    "shared_head.head": "lm_head",
}
"""What else a checkpoint has of such a layer, and how those folders name it."""
FIRST = "model.layers.0."


class NextLayer(nn.Module):
    """`tap`: `post`, hidden states are read and made after a final norm, or `pre`, before it."""

    def __init__(self, block: nn.Module, size: int, eps: float, tap: str) -> None:
        super().__init__()
        self.enorm = nn.RMSNorm(size, eps=eps)
        self.hnorm = nn.RMSNorm(size, eps=eps)
        self.eh_proj = nn.Linear(2 * size, size, bias=False)
        self.mtp_block = block
        self.shared_head_norm = nn.RMSNorm(size, eps=eps)
        self._tap = tap

    def make_cache(self) -> list[Any]:
        return [KVCache()]

    def __call__(self, embedded: mx.array, hidden: mx.array, caches: list[Any]) -> mx.array:
        x = self.eh_proj(mx.concatenate([self.enorm(embedded), self.hnorm(hidden)], axis=-1))
        # An array: latent attention adds it to scores of its own.
        mask = create_attention_mask(x, caches[0], return_array=True)
        x = self.mtp_block(x, mask, caches[0])
        return x if self._tap == "pre" else self.shared_head_norm(x)

    def spoken(self, hidden: mx.array) -> mx.array:
        return self.shared_head_norm(hidden) if self._tap == "pre" else hidden


def _family(model_type: str, module: ModuleType, layer: Callable[[Any, int], nn.Module]) -> Family:
    """`module`, `layer` (of the arguments and an index): mlx-lm's, of the target."""

    def renamed(stored: Tensors, model: LoadedModel) -> Tensors:
        named = {_outside(name, _prefix(model)): array for name, array in stored.items()}
        inside = {
            FIRST + name.removeprefix(BLOCK): named.pop(name)
            for name in list(named)
            if name.startswith(BLOCK)
        }
        # As the target's own layers are: experts stacked, keys and values apart.
        alone = SimpleNamespace(args=replace(model.network.args, num_hidden_layers=1))
        made = module.Model.sanitize(alone, inside)
        return named | {BLOCK + n.removeprefix(FIRST): array for n, array in made.items()}

    def build(
        model: LoadedModel, named: Tensors, _: Mapping[str, Any], options: Mapping[str, Any]
    ) -> nn.Module:
        args = model.network.args
        block = layer(args, args.num_hidden_layers)
        made = NextLayer(block, args.hidden_size, args.rms_norm_eps, options["glm_hidden_tap"])
        if "embed_tokens.weight" in named:
            made.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        if "lm_head.weight" in named:
            made.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)
        return made

    return Family(
        model_type=f"{model_type}_mtp",
        targets=(model_type,),
        width=FLAT_WIDTH,
        is_of_head=lambda name, model: name.startswith(_prefix(model)),
        renamed=renamed,
        build=build,
        taps=_taps,
    )


def _prefix(model: LoadedModel) -> str:
    return f"model.layers.{model.network.args.num_hidden_layers}."


def _outside(name: str, prefix: str) -> str:
    """The name in a folder of its own, without `model.` before it."""
    if not name.startswith(prefix):
        return name.removeprefix("model.")
    module, _, kind = name.removeprefix(prefix).rpartition(".")
    return f"{OUTSIDE[module]}.{kind}" if module in OUTSIDE else f"{BLOCK}{module}.{kind}"


def _taps(model: LoadedModel, options: Mapping[str, Any]) -> tuple[int, ...]:
    last = cast(int, model.network.args.num_hidden_layers) - 1
    return (last,) if options["glm_hidden_tap"] == "pre" else ()


NEXT_LAYERS = (
    _family("glm4_moe_lite", glm4_moe_lite, glm4_moe_lite.Glm4MoeLiteDecoderLayer),
    _family("glm4_moe", glm4_moe, glm4_moe.DecoderLayer),
    _family("deepseek_v3", deepseek_v3, deepseek_v3.DeepseekV3DecoderLayer),
)
