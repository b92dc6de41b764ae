"""What was asked for, and the tree it came to: plain data, no Hydra in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final


class Removed:
    """The value of a key that `~key` took out of the tree."""

    def __repr__(self) -> str:
        return "removed"


REMOVED: Final = Removed()


class Origin(StrEnum):
    """Who set a value, weakest first."""

    OURS = "conf"
    FILES = "files"
    """A recipe, or the user's own folder."""
    ENVIRONMENT = "environment"
    COMMAND_LINE = "command line"

    def source(self, name: str) -> str:
        """For display: `command line: --port`."""
        return f"{self}: {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A typed value laid on the composed tree. `name` is what set it: `--port`, a variable, or a
    word (without its secret)."""

    key: str
    value: object
    origin: Origin
    name: str
    kinds: Mapping[str, str | None] = field(default_factory=dict)
    """Where the key's section is of such a kind, the key that is set instead; None: none is."""

    @property
    def source(self) -> str:
        return self.origin.source(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What argv and the environment ask for."""

    overrides: tuple[str, ...] = ()
    """Hydra words in order: `model=qwen3`, `server.port=8080`, `+x.y=1`, `~x`."""
    choices: tuple[tuple[str, str], ...] = ()
    """Group choices made by flags; a word that chooses differently wins."""
    values: tuple[Setting, ...] = ()
    """Lowest precedence first."""
    recipes: tuple[str, ...] = ()
    """Names, or paths that end in .yaml or .yml; the last one wins."""
    config_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """The tree, and what is needed to say where each of its values came from."""

    tree: dict[str, Any]
    choices: Mapping[str, str]
    """Group to option."""
    asked: Asked
    laid: tuple[Setting, ...] = ()
    """What was laid on the group files and recipes, in order; the last one wins."""
    group_words: tuple[str, ...] = ()
    """The group choices as Hydra got them."""
    recipe_files: Mapping[str, Path] = field(default_factory=dict)
    """Recipes given as a path: the name Hydra knows them by, and the file."""
    search: tuple[Path, ...] = ()
    """Folders that hold group folders; the first hit wins."""
