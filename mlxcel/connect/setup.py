"""What an agent needs to be told so that it uses a server, as plain data.

Knows no agent and no file format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlxcel.core.errors import MlxcelError

PROVIDER = "mlxcel"
"""What we are called in the settings of agents that know several providers."""
KEY_VARIABLE = "MLXCEL_API_KEY"
"""Where agents that read the key from a variable find it; the server reads the same one."""
NO_KEY = "none"
"""For agents that want a key where the server wants none."""
OUTPUT_SHARE = 4
MOST_OUTPUT = 32_768
FEW_TOKENS = 16_384
"""What agents say before the user says a word is often more."""


class ConnectFailed(MlxcelError):
    """The agent cannot be pointed at the server; the message says what to do. Exit code 1."""

    code = "connect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs, and the model it serves."""

    url: str
    """Without `/v1` and without a slash at the end."""
    model: str
    window: int
    """Tokens that prompt and answer have together."""
    key: str | None = None

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def output(self) -> int:
        """Tokens an answer may have: a quarter of the window, so that the rest is left to the
        prompt, and no more than agents ask of large models."""
        return max(1, min(self.window // OUTPUT_SHARE, MOST_OUTPUT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one file must hold. Mappings are merged into those there are; so are lists, item by
    item, where mappings with the same `name` are the same item. None takes a key out."""

    path: Path
    form: str
    """json, toml or yaml; json may have comments."""
    settings: Mapping[str, Any]
    fresh: Mapping[str, Any] = field(default_factory=dict)
    """What a file that is new must hold besides, before the settings."""
    holds_key: bool = False
    """Nobody else may read the file then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    """What the reader must do besides."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the files of this user are."""

    home: Path
    environ: Mapping[str, str]

    def folder(self, variable: str, default: str) -> Path:
        """The folder a variable names, else one below the home. Empty means not set."""
        named = self.environ.get(variable, "")
        return Path(named).expanduser() if named else self.home / default
