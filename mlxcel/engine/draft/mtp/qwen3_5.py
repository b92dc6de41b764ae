"""The head of the Qwen 3.5 family: one layer of the target's kind over embedding and hidden state.

Only that of the dense models: how the experts of a mixture are laid out is not agreed on.
"""

from collections.abc import Mapping
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.models.qwen3_5 import DecoderLayer, TextModelArgs

from mlxcel.core.errors import StartupError
from mlxcel.engine.draft.mtp.head import Family, Tensors
from mlxcel.engine.draft.mtp.tensors import layers_in
from mlxcel.weights.load import LoadedModel

RAW = "mtp."
"""As it was trained: there a norm's weight is what is added to one."""
CONVERTED = "language_model.mtp."
"""As conversions for MLX keep it inside a checkpoint: norms are multiplied as they stand."""


class Qwen35Head(nn.Module):
    """Its hidden states, like those it reads, are what a final norm makes."""

    def __init__(self, args: TextModelArgs, layers: int) -> None:
        super().__init__()
        size, eps = args.hidden_size, args.rms_norm_eps
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps=eps)
        self.fc = nn.Linear(2 * size, size, bias=False)
        attends = args.full_attention_interval - 1  # the index of a layer with full attention
        self.layers = [DecoderLayer(args, attends) for _ in range(layers)]
        self.norm = nn.RMSNorm(size, eps=eps)

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers]

    def __call__(self, embedded: mx.array, hidden: mx.array, caches: list[Any]) -> mx.array:
        parts = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
        x = self.fc(mx.concatenate(parts, axis=-1))
        mask = create_attention_mask(x, caches[0])
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, mask=mask, cache=cache)
        return self.norm(x)

    def spoken(self, hidden: mx.array) -> mx.array:
        return hidden


def _is_of_head(name: str, _: LoadedModel) -> bool:
    return name.startswith((RAW, CONVERTED))


def _renamed(stored: Tensors, _: LoadedModel) -> Tensors:
    return dict(_as_module(name, array) for name, array in stored.items())


def _as_module(name: str, array: mx.array) -> tuple[str, mx.array]:
    if name.startswith(RAW):
        return name.removeprefix(RAW), array + 1.0 if _is_norm(name) else array
    return name.removeprefix(CONVERTED), array


def _is_norm(name: str) -> bool:
    """`norm.weight`, `input_layernorm.weight`, `q_norm.weight`, `pre_fc_norm_hidden.weight`."""
    module, _, kind = name.rpartition(".")
    return kind == "weight" and "norm" in module.rpartition(".")[2]


def _build(
    model: LoadedModel, named: Tensors, config: Mapping[str, Any], _: Mapping[str, Any]
) -> nn.Module:
    args = cast(TextModelArgs, model.network.language_model.args)
    text = config.get("text_config") or config
    if args.num_experts or text.get("num_experts"):
        raise StartupError(
            f"draft: the MTP heads of a mixture of experts cannot be read ({model.family} with "
            f"num_experts={args.num_experts or text['num_experts']}); those of dense models can"
        )
    return Qwen35Head(args, layers_in(named))


QWEN3_5 = Family(
    model_type="qwen3_5_mtp",
    targets=("qwen3_5", "qwen3_5_text", "qwen3_5_moe"),
    width=3,
    is_of_head=_is_of_head,
    renamed=_renamed,
    build=_build,
    taps=lambda *_: (),
)
