"""Who drafts, where the configuration leaves it to be found: `draft=auto` is composed again as the
kind that was found, so that what the operator has set beside it holds as if it had been named."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlxcel.config import layers
from mlxcel.config.asked import Asked, Composed
from mlxcel.config.compose import compose
from mlxcel.config.keys import read
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.validate import validate
from mlxcel.config.words import Choice, read_word
from mlxcel.core.errors import StartupError
from mlxcel.store.drafters import brings_mtp, identify_drafter, kind_of_drafter
from mlxcel.store.probe import config_of
from mlxcel.store.progress import Progress
from mlxcel.store.resolve import Store, find, obtain

log = logging.getLogger(__name__)

GROUP = "draft"
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    kind: str
    why: str
    """For the log and for errors."""


def locate_drafter(tree: Mapping[str, Any], offline_only: bool, progress: Progress) -> Path | None:
    """From where models come from; None: none is named, or it is not on this machine and was not
    to be fetched. Raises StartupError."""
    path = tree[GROUP].get("path")
    if path is None:
        return None
    store = Store.from_options(tree["model"])
    try:
        if offline_only:
            return find(store, path)
        return obtain(store, path, progress, identify_drafter)
    except StartupError as error:
        raise StartupError(f"draft.path: {error.message}", param="draft.path") from error


def find_kind(tree: Mapping[str, Any], drafter: Path | None, model: Path | None) -> Found | None:
    """None: it is not known, for what tells it is not on this machine."""
    if drafter is not None:
        kind = kind_of_drafter(config_of(drafter))
        return Found(kind=kind, why=f"by the config.json of {drafter}")
    if read(tree, "draft.path") is not None:
        return None
    if read(tree, "model.kind") == "echo":
        return Found(kind=NONE, why="a scripted engine says its script")
    if model is None:
        return None
    if brings_mtp(model):
        return Found(kind="mtp", why=f"{model} has heads for it")
    return Found(kind=NONE, why=f"{model} has no MTP heads that can be read, draft.path is null")


def composed_as(composed: Composed, found: Found) -> Composed:
    """What was asked for, with the kind that was found. Raises ConfigErrors for keys set beside
    `draft=auto` that this kind does not have."""
    log.info("draft=auto: %s: %s", found.kind, found.why)
    if found.kind == NONE:
        tree = {**composed.tree, GROUP: {"kind": NONE}}
        return replace(composed, tree=tree, choices={**composed.choices, GROUP: NONE})
    again = compose(_asked_as(composed.asked, found.kind))
    if problems := validate(again):
        hint = f"draft=auto has found {found.kind}: {found.why}"
        raise ConfigErrors([replace(problem, hint=hint) for problem in problems])
    return again


def _asked_as(asked: Asked, kind: str) -> Asked:
    words = tuple(word for word in asked.overrides if not _chooses_drafter(word))
    others = (choice for choice in asked.choices if choice[0] != GROUP)
    return replace(asked, overrides=words, choices=(*others, (GROUP, kind)))


def _chooses_drafter(word: str) -> bool:
    choice = read_word(word, layers.groups())
    return isinstance(choice, Choice) and choice.group == GROUP
