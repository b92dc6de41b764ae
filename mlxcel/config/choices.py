"""Which option each group takes, and whether there is such an option."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from mlxcel.config.asked import Asked, Origin
from mlxcel.config.layers import RECIPES, find, options
from mlxcel.config.words import Choice
from mlxcel.core.problem import Problem

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    words: tuple[str, ...]
    """The choices as Hydra reads them."""
    recipes: tuple[str, ...]
    """As they were asked for."""
    recipe_files: dict[str, Path]
    problems: tuple[Problem, ...]


def choose(asked: Asked, typed: Sequence[Choice], search: Sequence[Path]) -> Chosen:
    """Words win over flags, the last word over those before it; recipes add up."""
    found = [*_groups(asked, typed), *_recipes(asked, typed)]
    problems = {choice: problem for choice in found if (problem := _refusal(choice, search))}
    good = [choice for choice in found if choice not in problems]
    recipes = [choice.options[0] for choice in good if choice.group == RECIPES]
    names, files = _recipe_names(recipes)
    words = [f"{c.group}={_quoted(c.options[0])}" for c in good if c.group != RECIPES]
    if names:
        words.append(f"{RECIPES}=[{','.join(_quoted(name) for name in names)}]")
    return Chosen(
        words=tuple(words),
        recipes=tuple(recipes),
        recipe_files=files,
        problems=tuple(problems.values()),
    )


def _groups(asked: Asked, typed: Sequence[Choice]) -> list[Choice]:
    """One choice per group."""
    found = {
        group: Choice(group=group, options=(option,), source=Origin.COMMAND_LINE)
        for group, option in asked.choices
    }
    words: dict[str, Choice] = {}
    for word in typed:
        if word.group == RECIPES:
            continue
        before = words.get(word.group)
        if before is not None and before.options != word.options:
            log.warning("%s is chosen twice; the last one counts: %s", word.group, word.source)
        words[word.group] = word
    return list({**found, **words}.values())


def _recipes(asked: Asked, typed: Sequence[Choice]) -> list[Choice]:
    """One choice per recipe; `recipes=null` forgets those before it."""
    found = [
        Choice(
            group=RECIPES, options=(name,), source=Origin.COMMAND_LINE.source(f"--recipe {name}")
        )
        for name in asked.recipes
    ]
    for word in typed:
        if word.group != RECIPES:
            continue
        if not word.options:
            found = []
        found += [Choice(group=RECIPES, options=(n,), source=word.source) for n in word.options]
    unique = {choice.options[0]: choice for choice in found}
    return list(unique.values())


def _recipe_names(recipes: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """Hydra's names of the recipes, and the files of those given as a path."""
    names, files = [], {}
    for index, name in enumerate(recipes):
        if _is_path(name):
            path = Path(name).expanduser().absolute()
            name = f"file_{index}_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
            files[name] = path
        names.append(name)
    return names, files


def _refusal(choice: Choice, search: Sequence[Path]) -> Problem | None:
    group = choice.group
    if len(choice.options) != 1:
        rule = "chooses nothing" if not choice.options else "chooses several options"
        return _refused(choice, rule, _existing(group, search))
    option = choice.options[0]
    if group == RECIPES and _is_path(option):
        there = Path(option).expanduser().is_file()
        return None if there else _refused(choice, "is no file", "name a recipe or a YAML file")
    if find(f"{group}/{option}", search) and not option.startswith("_"):
        return None
    return _refused(choice, f"is no option of {group}", _hint(group, option, search))


def _hint(group: str, option: str, search: Sequence[Path]) -> str:
    if group == "model" and ("/" in option or option.startswith((".", "~"))):
        words = f"--model {option}, or model=default model.path={option}"
        return f"a path or a name on the hub is given by {words}"
    if group == "draft" and option in ("internal-mtp", "internal_mtp"):
        return "heads inside the model's checkpoint are not chosen but found, by draft=auto"
    near = get_close_matches(option, options(group, search), n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    more = "; any other model: --model NAME" if group == "model" else ""
    return f"{guess}{_existing(group, search)}{more}"


def _existing(group: str, search: Sequence[Path]) -> str:
    return f"there are: {', '.join(options(group, search))}"


def _refused(choice: Choice, rule: str, hint: str) -> Problem:
    value = ",".join(choice.options)
    return Problem(key=choice.group, value=value, rule=rule, hint=hint, source=choice.source)


def _is_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _quoted(option: str) -> str:
    """The option as Hydra's grammar takes it."""
    if re.fullmatch(r"[\w.\-/]+", option):
        return option
    escaped = option.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
