"""`mlxcel connect AGENT`: the settings that point a coding agent at the running server."""

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from mlxcel.config.asked import Asked, Composed, Origin
from mlxcel.config.problems import ConfigErrors
from mlxcel.core.problem import Problem

if TYPE_CHECKING:
    from mlxcel.connect.setup import Server, Setup

KEYS, KEY_FILES = "server.api_keys", "server.api_key_files"


def run(asked: Asked, words: Sequence[str], options: Mapping[str, Any]) -> int:
    """`words`: the agent. `options`: `url`; `write`, and `yes` to do so without asking. Returns 1
    where the user wants nothing written. Raises ConfigErrors and ConnectFailed."""
    import os
    from pathlib import Path

    from mlxcel.config.compose import compose
    from mlxcel.config.validate import validate
    from mlxcel.connect.agents import AGENTS
    from mlxcel.connect.setup import Places

    agent = _agent(words, list(AGENTS))
    if options["yes"] and not options["write"]:
        rule = "does nothing without --write"
        raise ConfigErrors([Problem(key="--yes", value=None, rule=rule)])
    composed = compose(asked)
    if problems := validate(composed):
        raise ConfigErrors(problems)
    server = _server(composed, options["url"])
    print(f"{server.url} serves {server.model}, {server.window} tokens of context", file=sys.stderr)
    setup = AGENTS[agent](server, Places(Path.home(), os.environ))
    code = _write(setup, asks=not options["yes"]) if options["write"] else _print(setup)
    for note in (*setup.notes, *_small(server)):
        print(f"note: {note}", file=sys.stderr)
    return code


def _agent(words: Sequence[str], agents: Sequence[str]) -> str:
    listed = ", ".join(agents)
    if len(words) == 1 and words[0] in agents:
        return words[0]
    name = words[0] if len(words) == 1 else ""
    near = get_close_matches(name, agents, n=1)
    hint = f"did you mean {near[0]}? All: {listed}" if near else f"one of {listed}"
    rule = "unknown agent" if name else "needs one agent"
    key = " ".join(["connect", *words])
    raise ConfigErrors([Problem(key=key, value=None, rule=rule, hint=hint)])


def _small(server: "Server") -> list[str]:
    from mlxcel.connect.setup import FEW_TOKENS

    few = f"{server.window} tokens are few for an agent: give the server a larger --ctx-size"
    return [f"{few}, which its --parallel slots share"] if server.window < FEW_TOKENS else []


def _server(composed: Composed, url: str | None) -> "Server":
    from mlxcel.connect.ask import ask, configured_url, typed_url

    section = composed.tree["server"]
    if url is not None:
        # Keys out of files are those of our own server: no other address is told them.
        return ask(typed_url(url), key=_key(_said(composed)))
    address = configured_url(section)
    return ask(address, key=_key(section), certificate=section["tls"]["cert"])


def _said(composed: Composed) -> dict[str, Any]:
    """The keys that the command line and the environment name."""
    origins = (Origin.COMMAND_LINE, Origin.ENVIRONMENT)
    said: dict[str, Any] = {"api_keys": [], "api_key_files": []}
    for setting in composed.laid:
        name = setting.key.removeprefix("server.")
        if setting.key in (KEYS, KEY_FILES) and setting.origin in origins:
            said[name] += setting.value
    return said


def _key(section: Mapping[str, Any]) -> str | None:
    """Any of them will do; the last was said last, on the command line."""
    from mlxcel.core.keys import read_key_files

    keys = [key for key in section["api_keys"] if key]
    if not keys and section["api_key_files"]:
        keys = read_key_files(section["api_key_files"])
    return keys[-1] if keys else None


def _print(setup: "Setup") -> int:
    """What is to be pasted on standard output, where on standard error."""
    from mlxcel.connect.files import snippet

    for change in setup.changes:
        print(f"{change.path}:", file=sys.stderr, flush=True)
        print(snippet(change), flush=True)
    return 0


def _write(setup: "Setup", *, asks: bool) -> int:
    from mlxcel.connect.files import draft, write

    drafts = [draft(change) for change in setup.changes]
    for one in drafts:
        print(f"{one.path} is as it should be" if one.is_done else one.diff(), flush=True)
    open_ones = [one for one in drafts if not one.is_done]
    if not open_ones:
        return 0
    if asks and not _agrees():
        print("nothing was written", file=sys.stderr)
        return 1
    for one in open_ones:
        backup = write(one)
        kept = f"; what it was is in {backup}" if backup else ""
        print(f"wrote {one.path}{kept}", file=sys.stderr)
    return 0


def _agrees() -> bool:
    from mlxcel.connect.setup import ConnectFailed

    if not sys.stdin.isatty():
        raise ConnectFailed("nothing was written: there is no terminal to ask; add --yes")
    print("Write this? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
