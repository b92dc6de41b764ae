"""The part `drafter` of a worker: a DFlash head from its folder, for one target."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import get_total_parameters

from mlxcel.core.errors import StartupError
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash.config import LEAST_WIDTH, DFlashConfig, read_config
from mlxcel.engine.draft.dflash.drafter import Blocks, DFlash, Silent
from mlxcel.engine.draft.dflash.network import ContextRows, Network
from mlxcel.engine.draft.heads import DraftHead, HiddenDrafter
from mlxcel.engine.draft.target import Target, target_of
from mlxcel.engine.draft.tensors import Tensors, fill, hold, is_quantised, read_folder
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)

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
    if config.is_dspark:
        tensors = {name: one for name, one in tensors.items() if not name.startswith(CONFIDENCE)}
    target = target_of(model.network)
    _compare(folder, config, model, target)
    network = Network(
        config,
        has_embedding="embed_tokens.weight" in tensors,
        has_head="lm_head.weight" in tensors,
    )
    fill(network, tensors, folder, "DFlash")
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
        keeps_odds = options["stochastic_accept"]
        return DFlash(blocks, sampling, vocab=model.vocab_size, keeps_odds=keeps_odds)

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
            "is_quantised": is_quantised(network),
        },
    )


def _read(folder: Path) -> Tensors:
    found = {name.removeprefix("model."): one for name, one in read_folder(folder).items()}
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


def _hold(network: Network, asked: str, model: LoadedModel, target: Target) -> None:
    """`auto`: as the target is held, so that nothing that passes between them is converted."""
    if asked == "as-stored":
        return
    dtype = target.norm.weight.dtype if asked == "auto" else getattr(mx, asked)
    hold(network, dtype, is_dense=asked != "auto" or not is_quantised(model.network))


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
