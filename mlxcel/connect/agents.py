"""The agents we know, by the names they are asked for."""

from collections.abc import Callable, Mapping

from mlxcel.connect import aider, claude_code, codex, continue_dev, opencode, zed
from mlxcel.connect.setup import Places, Server, Setup

AGENTS: Mapping[str, Callable[[Server, Places], Setup]] = {
    "claude-code": claude_code.setup,
    "codex": codex.setup,
    "opencode": opencode.setup,
    "zed": zed.setup,
    "aider": aider.setup,
    "continue": continue_dev.setup,
}
