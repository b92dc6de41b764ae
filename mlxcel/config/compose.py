"""From what was asked to the tree: group choices through Hydra, values laid on top by us.

Precedence, highest first: command line, environment, recipe, user folder, `conf/`.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlxcel.config import layers
from mlxcel.config.asked import Asked, Composed, Origin, Setting
from mlxcel.config.choices import Chosen, choose
from mlxcel.config.paths import missing_dirs, user_dirs
from mlxcel.config.problems import HIDDEN, ConfigErrors, shown
from mlxcel.config.schema import additive
from mlxcel.config.validate import located, validate
from mlxcel.config.words import Choice, hides_secret, read_word
from mlxcel.core.problem import Problem

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)


def compose(asked: Asked) -> Composed:
    """The tree that was asked for. What cannot be understood raises, together with all that
    `validate` finds in the rest."""
    user = user_dirs(asked.config_dirs, os.environ)
    if lost := [*_lost_folders(asked), *_user_roots(user)]:
        raise ConfigErrors(lost)
    search = layers.search_path(user)
    words = [read_word(word, layers.groups()) for word in asked.overrides]
    problems = [word for word in words if isinstance(word, Problem)]
    chosen = choose(asked, [word for word in words if isinstance(word, Choice)], search)
    typed = [word for word in words if isinstance(word, Setting)]
    problems += chosen.problems
    _warn_repeated(typed)
    tree, choices = _from_files(chosen, search, problems)
    values = list(_aimed(asked.values, tree))
    problems += _conflicts(values, typed)
    composed, unlaid = _laid(tree, asked, values, typed, chosen, choices, search)
    problems += unlaid
    _log_hiding(user)
    if problems:
        known = {problem.key for problem in problems}
        rest = (problem for problem in validate(composed) if problem.key not in known)
        raise ConfigErrors([*problems, *rest])
    return composed


def _laid(
    tree: "DictConfig",
    asked: Asked,
    flags: Sequence[Setting],
    typed: Sequence[Setting],
    chosen: Chosen,
    choices: Mapping[str, str],
    search: tuple[Path, ...],
) -> tuple[Composed, list[Problem]]:
    """The values of flags, variables and words on the tree of the files."""
    from mlxcel.config.lay import lay, literal, resolved

    below = [
        value
        for value in flags
        if value.origin is not Origin.COMMAND_LINE and not _is_for_another(value, tree)
    ]
    above = [value for value in flags if value.origin is Origin.COMMAND_LINE]
    flagged = {id(value) for value in flags}
    ordered = (*below, *typed, *above)
    exact = (replace(s, value=literal(s.value)) if id(s) in flagged else s for s in ordered)
    problems = [problem for setting in exact if (problem := lay(tree, setting))]
    plain, unresolved = resolved(tree)
    composed = Composed(
        tree=plain,
        choices=choices,
        asked=asked,
        laid=ordered,
        group_words=chosen.words,
        recipe_files=chosen.recipe_files,
        search=search,
    )
    return composed, [*problems, *located(unresolved, composed)]


def _aimed(values: Iterable[Setting], tree: "DictConfig") -> Iterator[Setting]:
    """The values, each with the key it has where its section is of the kind it is."""
    from omegaconf import OmegaConf

    for value in values:
        section = value.key.partition(".")[0]
        kind = OmegaConf.select(tree, f"{section}.kind") if value.kinds else None
        key = value.kinds.get(kind, value.key) if isinstance(kind, str) else value.key
        if key is not None:
            yield replace(value, key=key)


def _is_for_another(variable: Setting, tree: "DictConfig") -> bool:
    """A variable may be set for good, for options that are not chosen this time."""
    from omegaconf import OmegaConf

    from mlxcel.config.schema import every_key

    missing = object()
    is_here = OmegaConf.select(tree, variable.key, default=missing) is not missing
    if is_here or variable.key not in every_key():
        return False
    log.debug("%s has no effect: %s is no key of what is chosen", variable.source, variable.key)
    return True


def _from_files(
    chosen: Chosen, search: tuple[Path, ...], problems: Sequence[Problem]
) -> tuple["DictConfig", dict[str, str]]:
    """Hydra's part. Its own refusals end here, for then there is no tree to check."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        tree, choices = layers.composed(chosen.words, search, chosen.recipe_files)
    except (HydraException, OmegaConfBaseException, YAMLError, OSError, UnicodeError) as error:
        refused = Problem(key="conf", value=None, rule=_reason(error))
        raise ConfigErrors([*problems, refused]) from error
    if chosen.recipes:
        choices[layers.RECIPES] = ",".join(chosen.recipes)
    return tree, choices


def _reason(error: BaseException) -> str:
    """What an error says, with the cause that Hydra hides behind it."""
    parts: list[str] = []
    at: BaseException | None = error
    while at is not None:
        text = " ".join(str(at).split())
        if text and text not in parts:
            parts.append(text)
        at = at.__cause__
    return "cannot be composed: " + ": ".join(parts)


def _conflicts(flags: Sequence[Setting], typed: Sequence[Setting]) -> list[Problem]:
    """Keys that a flag and a word of the same command line set to two values."""
    said = {
        value.key: value
        for value in flags
        if value.origin is Origin.COMMAND_LINE and value.key not in additive()
    }
    clashes = [(word, said[word.key]) for word in typed if word.key in said]
    return [
        _clash(word, flag)
        for word, flag in clashes
        if (type(word.value), word.value) != (type(flag.value), flag.value)
    ]


def _clash(word: Setting, flag: Setting) -> Problem:
    secret = hides_secret(word.key, word.value)
    return Problem(
        key=word.key,
        value=HIDDEN if secret else word.value,
        rule=f"is set to {HIDDEN if secret else shown(flag.value)} by {flag.name} as well",
        hint="leave one of them out",
        source=word.source,
    )


def _warn_repeated(typed: Sequence[Setting]) -> None:
    seen: dict[str, Setting] = {}
    for word in typed:
        before = seen.get(word.key)
        if before is not None and before.value != word.value:
            log.warning("%s is set twice; the last one counts: %s", word.key, word.source)
        seen[word.key] = word


def _lost_folders(asked: Asked) -> list[Problem]:
    rule = "is no folder"
    missing = missing_dirs(asked.config_dirs, os.environ)
    return [
        Problem(key="--config-dir", value=str(folder), rule=rule, hint="make it, or name another")
        for folder in missing
    ]


def _user_roots(user: Sequence[Path]) -> list[Problem]:
    """A user's own root file would take the place of ours and lose every group added later."""
    return [
        Problem(
            key="config.yaml",
            value=str(folder / "config.yaml"),
            rule="is not read",
            hint=f"make it a recipe: {folder}/recipes/NAME.yaml, and start with recipes=NAME",
        )
        for folder in user
        if (folder / "config.yaml").exists()
    ]


def _log_hiding(user: Sequence[Path]) -> None:
    ours = layers.search_path(())
    for folder in user:
        for group in layers.groups():
            for option in layers.options(group, [folder]):
                if hidden := layers.find(f"{group}/{option}", ours):
                    log.info("%s/%s/%s.yaml is used instead of %s", folder, group, option, hidden)
