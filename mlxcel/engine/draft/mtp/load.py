"""The part `drafter` of a worker: next-token heads, from a folder or from the target's own.

The folder's config says of what kind they are; without a folder the target's family does.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import get_total_parameters

from mlxcel.core.errors import StartupError
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.mtp.drafter import NextTokens
from mlxcel.engine.draft.mtp.head import Family, Head, Tensors
from mlxcel.engine.draft.mtp.mimo import MIMO
from mlxcel.engine.draft.mtp.nextn import NEXT_LAYERS
from mlxcel.engine.draft.mtp.qwen import QWEN3_5, QWEN3_NEXT
from mlxcel.engine.draft.target import Target, target_of
from mlxcel.engine.draft.tensors import fill, hold, is_quantised, quantise, read_folder
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.base import Progress

FAMILIES = (QWEN3_5, QWEN3_NEXT, MIMO, *NEXT_LAYERS)
LEAST = 2
"""Tokens of a verify step with one proposal in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Heads in a folder. `config`: of that folder."""

    folder: Path
    config: Mapping[str, Any]
    family: Family
    tensors: Tensors


def load_mtp(options: Mapping[str, Any], progress: Progress, *, model: LoadedModel) -> DraftHead:
    """`options["path"]` None: the heads inside the target's own checkpoint. Raises StartupError
    for heads that are not there, or not for `model`."""
    progress("drafter: reading weights", None)
    path = options["path"]
    found = _inside(model) if path is None else _in_folder(Path(path), model)
    named = found.family.renamed(found.tensors, model)
    network = found.family.build(model, named, found.config, options)
    fill(network, named, found.folder, "MTP")
    _hold(network, options, model)
    if options["weight_materialization"] == "eager":
        progress("drafter: loading weights", None)
        mx.eval(network.parameters())
    head, target = cast(Head, network), _beside(network, target_of(model.network))

    def make(sampling: SamplingParams) -> NextTokens:
        keeps_odds = options["stochastic_accept"]
        return NextTokens(head, target, sampling, vocab=model.vocab_size, keeps_odds=keeps_odds)

    width = _width(options["block_size"], found)
    return DraftHead(
        kind="mtp",
        name=found.folder.name,
        folder=found.folder,
        network=network,
        width=model.hidden_size,
        most=width - 1,
        taps=found.family.taps(model, options),
        project=None,
        make=make,
        about={
            "heads": found.family.model_type,
            "block_size": width,
            "parameters": get_total_parameters(network),
            "is_quantised": is_quantised(network),
        },
    )


def _beside(network: nn.Module, target: Target) -> Target:
    """With the embedding and the output layer that the heads have of their own."""
    return replace(
        target,
        embed=network.embed_tokens if "embed_tokens" in network else target.embed,
        head=network.lm_head if "lm_head" in network else target.head,
    )


def _inside(model: LoadedModel) -> Found:
    family = next((one for one in FAMILIES if model.family in one.targets), None)
    if family is None:
        raise StartupError(
            f"draft.path is null, but the MTP heads of {model.family} cannot be read; those of "
            f"{_names(name for one in FAMILIES for name in one.targets)} can"
        )
    tensors = read_folder(model.folder, lambda name: family.is_of_head(name, model))
    if not tensors:
        raise StartupError(
            f"draft.path is null, but {model.folder} has no MTP heads (conversions often leave "
            f"them out); give a folder of model_type {family.model_type}"
        )
    return Found(folder=model.folder, config=model.config, family=family, tensors=tensors)


def _in_folder(folder: Path, model: LoadedModel) -> Found:
    config = _config(folder)
    kind = config.get("model_type")
    family = next((one for one in FAMILIES if one.model_type == kind), None)
    if family is None:
        raise StartupError(
            f"draft.path: {folder} has model_type {kind}, which is no MTP head that can be read; "
            f"{_names(one.model_type for one in FAMILIES)} can"
        )
    if model.family not in family.targets:
        raise StartupError(
            f"draft.path: {folder} ({kind}) drafts for {_names(family.targets)}, not for "
            f"{model.family}"
        )
    _compare(folder, config, model)
    tensors = read_folder(folder)
    if not tensors:
        raise StartupError(f"draft.path: {folder} has no safetensors")
    return Found(folder=folder, config=config, family=family, tensors=tensors)


def _config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise StartupError(f"draft.path: {folder} has no config.json to read: {why}") from why
    return config


def _compare(folder: Path, config: Mapping[str, Any], model: LoadedModel) -> None:
    text = config.get("text_config") or config
    for key, size in (("hidden_size", model.hidden_size), ("vocab_size", model.vocab_size)):
        if key in text and text[key] != size:
            raise StartupError(
                f"draft.path: {folder} has {key} {text[key]}, {model.folder} {size}; heads fit "
                "no model but the one they were trained with"
            )


def _hold(network: nn.Module, options: Mapping[str, Any], model: LoadedModel) -> None:
    """`auto`: as the target is held, so that none of what passes between them is converted;
    with `quantize` quantised where it is."""
    asked = options["precision"]
    if asked == "as-stored":
        return
    if asked != "auto":
        hold(network, getattr(mx, asked), is_dense=True)
        return
    is_dense = not is_quantised(model.network)
    hold(network, target_of(model.network).norm.weight.dtype, is_dense=is_dense)
    how = model.config.get("quantization")
    if options["quantize"] and how and not is_dense and not is_quantised(network):
        quantise(network, how)


def _width(asked: int | None, found: Found) -> int:
    """Tokens of a verify step: what is asked for, what the file says, what its kind has."""
    told = found.config.get("block_size")
    width = asked if asked is not None else told if told is not None else found.family.width
    if width < LEAST:
        raise StartupError(
            f"draft.block_size is {width}: at least {LEAST} tokens, the row's last one and one "
            "proposal"
        )
    return int(width)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
