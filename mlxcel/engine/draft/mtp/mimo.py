"""The head of MiMo: a layer of the target's, over the hidden state first and the embedding second.

It reads what the target's last layer makes, and hands on what its own final norm makes.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.models.mimo import ModelArgs, TransformerBlock

from mlxcel.engine.draft.mtp.head import FLAT_WIDTH, Family, Tensors
from mlxcel.weights.load import LoadedModel

PREFIX = "model.mtp_layers."
"""And a number: of several layers, each foretells from the one before, the first is used."""
FIRST = PREFIX + "0."
AROUND = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")


class MiMoHead(nn.Module):
    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        size, eps = args.hidden_size, args.rms_norm_eps
        self.token_layernorm = nn.RMSNorm(size, eps=eps)
        self.hidden_layernorm = nn.RMSNorm(size, eps=eps)
        self.input_proj = nn.Linear(2 * size, size, bias=False)
        self.block = TransformerBlock(args)
        self.final_layernorm = nn.RMSNorm(size, eps=eps)

    def make_cache(self) -> list[Any]:
        return [KVCache()]

    def __call__(self, embedded: mx.array, hidden: mx.array, caches: list[Any]) -> mx.array:
        parts = [self.hidden_layernorm(hidden), self.token_layernorm(embedded)]
        x = self.input_proj(mx.concatenate(parts, axis=-1))
        x = self.block(x, create_attention_mask(x, caches[0]), caches[0])
        return self.final_layernorm(x)

    def spoken(self, hidden: mx.array) -> mx.array:
        return hidden


def _renamed(stored: Tensors, _: LoadedModel) -> Tensors:
    named = {name.removeprefix(FIRST): array for name, array in stored.items()}
    return {
        name if name.startswith((*AROUND, "block.")) else f"block.{name}": array
        for name, array in named.items()
        if not name.startswith(PREFIX)
    }


def _build(
    model: LoadedModel, _: Tensors, __: Mapping[str, Any], ___: Mapping[str, Any]
) -> nn.Module:
    return MiMoHead(model.network.args)


def _taps(model: LoadedModel, _: Mapping[str, Any]) -> tuple[int, ...]:
    return (int(model.network.args.num_hidden_layers) - 1,)


MIMO = Family(
    model_type="mimo_mtp",
    targets=("mimo",),
    width=FLAT_WIDTH,
    is_of_head=lambda name, _: name.startswith(PREFIX),
    renamed=_renamed,
    build=_build,
    taps=_taps,
)
