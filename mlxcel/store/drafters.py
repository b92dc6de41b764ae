"""Who a drafter is, told from its config.json, and whether a model brings one: JSON files and the
headers of weights are read, no weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxcel.core.drafters import MTP_HEADS
from mlxcel.store import shards
from mlxcel.store.probe import config_of, identify

DFLASH_ARCHITECTURES = frozenset({"DFlashDraftModel", "Lfm2DSparkDraftModel"})
DFLASH_TYPES = frozenset({"muse_glimmer_assistant"})
MTP_TYPES = frozenset({"gemma4_assistant"})
MTP_ENDING = "_mtp"


def kind_of_drafter(config: Mapping[str, Any]) -> str:
    """`dflash`, `mtp`, or `full_model`, by what config.json says.

    Architectures come first: DFlash drafters carry the model_type of an ordinary model.
    """
    named = config.get("architectures") or ()
    architectures = {named} if isinstance(named, str) else set(named)
    model_type = str(config.get("model_type", ""))
    if architectures & DFLASH_ARCHITECTURES or config.get("dflash_config") is not None:
        return "dflash"
    if model_type in DFLASH_TYPES:
        return "dflash"
    if model_type in MTP_TYPES or model_type.endswith(MTP_ENDING):
        return "mtp"
    return "full_model"


def identify_drafter(folder: Path) -> None:
    """Raises ModelUnusable for a folder that is neither a drafter nor a model that can be run."""
    if kind_of_drafter(config_of(folder)) == "full_model":
        identify(folder)


def brings_mtp(folder: Path) -> bool:
    """Whether a model's own checkpoint has MTP heads that can be loaded."""
    config = config_of(folder)
    layers = config.get("num_hidden_layers")
    beginnings = MTP_HEADS.get(config["model_type"], ())
    prefixes = tuple(beginning.format(layers=layers) for beginning in beginnings)
    return any(name.startswith(prefixes) for name in shards.tensors(folder))
