"""Hydra's words, taken apart: which choose an option of a group, which set a value.

Only the grammar is Hydra's. Values are laid by us, so that an unknown key is a problem like
any other and does not hide the rest.
"""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mlxcel.config.asked import REMOVED, Origin, Setting
from mlxcel.config.problems import HIDDEN
from mlxcel.config.schema import secrets
from mlxcel.core.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    group: str
    options: tuple[str, ...]
    """More than one for recipes alone; none: nothing is chosen."""
    source: str


Word = Choice | Setting | Problem


def read_word(word: str, groups: Collection[str]) -> Word:
    """What a word says, or why it says nothing."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(word)
    except HydraException as error:
        return _unparsed(word, str(error))
    key = str(parsed.key_or_group)
    name = _masked(word, key)
    if parsed.is_sweep_override():
        return _problem(key, word, "is a list of values to try", f"quote it: {_quoted(word)}")
    if parsed.package is not None:
        return _problem(key, word, "names a package", "write the key without @")
    if parsed.is_delete():
        return Setting(key=key, value=REMOVED, origin=Origin.COMMAND_LINE, name=name)
    value = parsed.value()
    if key in groups and (options := _options(value)) is not None:
        return Choice(group=key, options=options, source=Origin.COMMAND_LINE.source(name))
    key = key.replace("/", ".")
    return Setting(key=key, value=value, origin=Origin.COMMAND_LINE, name=name)


def hides_secret(key: str, value: object) -> bool:
    """Whether a value set at a key must not be shown: it is a secret, or may hold one."""
    if value is None:
        return False
    key = key.split("[", 1)[0]
    if any(key == secret or key.startswith(f"{secret}.") for secret in secrets()):
        return True
    is_mapping = isinstance(value, Mapping) or str(value).lstrip().startswith("{")
    return is_mapping and any(secret.startswith(f"{key}.") for secret in secrets())


def _options(value: object) -> tuple[str, ...] | None:
    match value:
        case None:
            return ()
        case list():
            return tuple(str(item) for item in value)
        case dict():
            return None
        case _:
            return (str(value),)


def _unparsed(word: str, reason: str) -> Problem:
    key, equals, value = word.partition("=")
    key = key.lstrip("+~")
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    rule = "cannot be read" if hides_secret(key, value) else f"cannot be read: {first}"
    hint = f"quote the value: {_quoted(word)}" if equals else "write key=value"
    return _problem(key, word, rule, hint)


def _problem(key: str, word: str, rule: str, hint: str) -> Problem:
    value = word.partition("=")[2]
    if hides_secret(key, value):
        value, hint = HIDDEN, "quote the value"
    source = Origin.COMMAND_LINE.source(_masked(word, key))
    return Problem(key=key, value=value, rule=rule, hint=hint, source=source)


def _quoted(word: str) -> str:
    """The word with its value quoted for Hydra, and all of it for the shell."""
    key, _, value = word.partition("=")
    inner = value.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{key}="{inner}"')


def _masked(word: str, key: str) -> str:
    """The word without the secret it may set."""
    name, equals, value = word.partition("=")
    return f"{name}={HIDDEN}" if equals and hides_secret(key, value) else word
