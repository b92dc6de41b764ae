"""The heads of Qwen 3.5 and Qwen 3 Next: a layer of the target's kind, with full attention, over
embedding and hidden state.

Of Qwen 3.5 only those of the dense models (contract: speculative 11).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.models.qwen3_5 import DecoderLayer
from mlx_lm.models.qwen3_next import Qwen3NextDecoderLayer

from mlxcel.core.errors import StartupError
from mlxcel.engine.draft.mtp.head import FLAT_WIDTH, Family, Tensors
from mlxcel.engine.draft.tensors import layers_in
from mlxcel.weights.load import LoadedModel

RAW = "mtp."
"""As it was trained: there a norm's weight is what is added to one."""
CONVERTED = "language_model.mtp."
"""As conversions for MLX keep it inside a checkpoint: norms are multiplied as they stand."""


class QwenHead(nn.Module):
    """Its hidden states, like those it reads, are what a final norm makes."""

    def __init__(self, size: int, eps: float, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps=eps)
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.layers = list(layers)
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
    """`mtp.norm.weight`, `..q_norm.weight`, `..input_layernorm.weight`, `..norm_hidden.weight`."""
    return "norm" in name.split(".")[-2]


def _build(
    model: LoadedModel, named: Tensors, config: Mapping[str, Any], _: Mapping[str, Any]
) -> nn.Module:
    args = model.network.language_model.args
    text = config.get("text_config") or config
    if args.num_experts or text.get("num_experts"):
        raise StartupError(
            f"draft: the MTP heads of a mixture of experts cannot be read ({model.family} with "
            f"num_experts={args.num_experts or text['num_experts']}); those of dense models can"
        )
    return _over(args, [DecoderLayer(args, _attends(args)) for _ in range(layers_in(named))])


def _build_next(
    model: LoadedModel, named: Tensors, _: Mapping[str, Any], __: Mapping[str, Any]
) -> nn.Module:
    args = model.network.args
    layers = range(layers_in(named))
    return _over(args, [Qwen3NextDecoderLayer(args, _attends(args)) for _ in layers])


def _over(args: Any, layers: Sequence[nn.Module]) -> QwenHead:
    return QwenHead(args.hidden_size, args.rms_norm_eps, layers)


def _attends(args: Any) -> int:
    """The index of a layer with full attention."""
    return int(args.full_attention_interval) - 1


def _renamed_next(stored: Tensors, model: LoadedModel) -> Tensors:
    """Experts are stored one by one, and held in one array of each projection."""
    named = _renamed(stored, model)
    for first in [name for name in named if ".mlp.experts.0." in name]:
        numbers = range(model.network.args.num_experts)
        names = [first.replace(".experts.0.", f".experts.{number}.") for number in numbers]
        experts = [named.pop(name) for name in names if name in named]
        named[first.replace(".experts.0.", ".switch_mlp.")] = mx.stack(experts)
    return named


QWEN3_5 = Family(
    model_type="qwen3_5_mtp",
    targets=("qwen3_5", "qwen3_5_moe"),
    width=3,
    is_of_head=_is_of_head,
    renamed=_renamed,
    build=_build,
    taps=lambda *_: (),
)
QWEN3_NEXT = Family(
    model_type="qwen3_next_mtp",
    targets=("qwen3_next",),
    width=FLAT_WIDTH,
    is_of_head=_is_of_head,
    renamed=_renamed_next,
    build=_build_next,
    taps=lambda *_: (),
)
