"""The part `drafter` of a worker: a DFlash head from its folder, for one target."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model, get_total_parameters, infer_quant_config

from mlxcel.core.errors import StartupError
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash.config import LEAST_WIDTH, DFlashConfig, read_config
from mlxcel.engine.draft.dflash.drafter import Blocks, DFlash, Silent
from mlxcel.engine.draft.dflash.network import ContextRows, Network
from mlxcel.engine.draft.heads import DraftHead, HiddenDrafter
from mlxcel.engine.draft.target import Target, target_of
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)

Tensors = dict[str, mx.array]
NAMED = 5
"""Tensors that a message names."""
CONFIDENCE = "confidence_head."
"""Tensors of a DSpark head that tell how sure it is of a proposal. How many are worth a try is
told by what came true (`governor`), so they are left where they are."""
SCALES = ("embedding_multiplier", "scale_emb", "mup_embedding_multiplier")
"""Keys of targets that multiply what they embed."""
FOLDED = ("falcon_h1",)
"""Families of which mlx-lm multiplies the weights instead."""


def load_dflash(options: Mapping[str, Any], progress: Progress, *, model: LoadedModel) -> DraftHead:
    """Raises StartupError for a folder that has no such head, or not one for `model`."""
    progress("drafter: reading weights", None)
    folder = Path(options["path"])
    tensors = _read(folder)
    config = read_config(folder)
    target = target_of(model.network)
    _compare(folder, config, model, target)
    network = Network(
        config,
        has_embedding="embed_tokens.weight" in tensors,
        has_head="lm_head.weight" in tensors,
    )
    _fill(network, tensors, folder)
    _hold(network, options["precision"], model, target)
    if options["weight_materialization"] == "eager":
        progress("drafter: loading weights", None)
        mx.eval(network.parameters())
    blocks = Blocks(
        network=network,
        embed=_embedding(network, target, _embed_scale(model)),
        head=_output(network, target),
        size=_width(options["block_size"], config) - 1 + config.scaffold,
    )

    def make(sampling: SamplingParams) -> HiddenDrafter:
        if config.is_dspark and not sampling.is_greedy:
            return Silent()
        return DFlash(blocks, sampling, vocab=model.vocab_size)

    return DraftHead(
        kind="dflash",
        name=folder.name,
        folder=folder,
        network=network,
        width=config.hidden_size,
        most=blocks.most,
        taps=config.target_layer_ids,
        project=ContextRows(network),
        make=make,
        about={
            "block_size": blocks.most + 1,
            "taps": list(config.target_layer_ids),
            "parameters": get_total_parameters(network),
            "is_quantised": _is_quantised(network),
        },
    )


def _read(folder: Path) -> Tensors:
    """Nothing but headers, before they are used."""
    found: Tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            arrays = cast(Tensors, mx.load(str(file)))
        except RuntimeError as why:
            raise StartupError(f"draft.path: {file} cannot be read: {why}") from why
        found |= {name.removeprefix("model."): array for name, array in arrays.items()}
    if "fc.weight" not in found:
        raise StartupError(
            f"draft.path: {folder} has no tensor fc.weight, so it is no DFlash head; with an "
            "ordinary model of the same tokens use draft=full_model"
        )
    return found


def _compare(folder: Path, config: DFlashConfig, model: LoadedModel, target: Target) -> None:
    for key, own, theirs in (
        ("hidden_size", config.hidden_size, model.hidden_size),
        ("vocab_size", config.vocab_size, model.vocab_size),
        ("num_target_layers", config.num_target_layers, len(target.layers)),
    ):
        if own != theirs:
            raise StartupError(
                f"draft.path: {folder} is for a model with {key} {own}; {model.folder} has "
                f"{theirs}. A head fits no model but the one it was trained with"
            )


def _fill(network: Network, tensors: Tensors, folder: Path) -> None:
    if network.config.is_dspark:
        tensors = {name: one for name, one in tensors.items() if not name.startswith(CONFIDENCE)}
    _quantise_as_stored(network, tensors)
    expected = dict(cast(list[tuple[str, mx.array]], tree_flatten(network.parameters())))
    _refuse(folder, "has tensors that a DFlash head has not", tensors.keys() - expected.keys())
    _refuse(folder, "lacks tensors", expected.keys() - tensors.keys())
    for name, array in tensors.items():
        if array.shape != expected[name].shape:
            raise StartupError(
                f"draft.path: {folder}: {name} is {array.shape}, its config.json makes it "
                f"{expected[name].shape}"
            )
    network.load_weights(list(tensors.items()))
    network.eval()


def _refuse(folder: Path, what: str, names: Iterable[str]) -> None:
    if found := sorted(names):
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise StartupError(f"draft.path: {folder} {what}: {', '.join(found[:NAMED])}{more}")


def _quantise_as_stored(network: Network, tensors: Tensors) -> None:
    """Shapes and types of the tensors tell how."""

    def how(path: str, module: nn.Module) -> Any:
        if not hasattr(module, "to_quantized") or f"{path}.scales" not in tensors:
            return False
        return infer_quant_config(path, module, tensors)

    nn.quantize(network, class_predicate=how)


def _hold(network: Network, asked: str, model: LoadedModel, target: Target) -> None:
    """`auto`: as the target is held, so that nothing that passes between them is converted."""
    if asked == "as-stored":
        return
    is_dense = asked != "auto" or not _is_quantised(model.network)
    if is_dense and _is_quantised(network):
        dequantize_model(network)
    network.set_dtype(target.norm.weight.dtype if asked == "auto" else getattr(mx, asked))


def _is_quantised(network: nn.Module) -> bool:
    return any(hasattr(module, "bits") for _, module in network.named_modules())


def _embedding(network: Network, target: Target, scale: float) -> Callable[[mx.array], mx.array]:
    embed = network.embed_tokens if "embed_tokens" in network else target.embed
    return embed if scale == 1 else lambda ids: embed(ids) * scale


def _embed_scale(model: LoadedModel) -> float:
    """What the target multiplies its embedding with."""
    config = model.config.get("text_config") or model.config
    if model.family.startswith("gemma"):
        return float(model.hidden_size**0.5)
    if model.family in FOLDED:
        return 1.0
    return float(next((config[key] for key in SCALES if config.get(key)), 1.0))


def _output(network: Network, target: Target) -> Callable[[mx.array], mx.array]:
    """Its own, its own embedding, the target's."""
    if "lm_head" in network:
        own: Callable[[mx.array], mx.array] = network.lm_head
        return own
    if "embed_tokens" in network and network.config.tie_word_embeddings:
        tied: Callable[[mx.array], mx.array] = network.embed_tokens.as_linear
        return tied
    dtype = target.norm.weight.dtype
    return lambda hidden: target.head(hidden.astype(dtype))


def _width(asked: int | None, config: DFlashConfig) -> int:
    """Tokens of a verify step: no more than a block as it was trained makes."""
    if asked is None:
        return config.width
    if asked < LEAST_WIDTH:
        raise StartupError(
            f"draft.block_size is {asked}: at least {LEAST_WIDTH} tokens, the row's last one and a "
            "proposal"
        )
    if asked > config.widest:
        log.info(
            "draft.block_size %d -> %d: the head was trained with blocks of %d",
            *(asked, config.widest, config.block_size),
        )
    return min(asked, config.widest)
