"""opencode: a provider of its own, through the AI SDK's package for OpenAI's chat dialect.

https://opencode.ai/docs/providers. The form is that of version 1, which version 2 reads as well;
version 1 refuses a file with the form of version 2.
"""

from pathlib import Path
from typing import Any

from mlxcel.connect.setup import PROVIDER, Change, Places, Server, Setup


def setup(server: Server, places: Places) -> Setup:
    options: dict[str, Any] = {"baseURL": server.v1}
    if server.key:
        options["apiKey"] = server.key
    # Both limits, or it refuses the file.
    limit = {"context": server.window, "output": server.output}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": options,
        "models": {server.model: {"name": server.model, "limit": limit}},
    }
    change = Change(
        path=_file(places),
        form="json",
        fresh={"$schema": "https://opencode.ai/config.json"},
        settings={"provider": {PROVIDER: provider}, "model": f"{PROVIDER}/{server.model}"},
        holds_key=server.key is not None,
    )
    return Setup(changes=(change,))


def _file(places: Places) -> Path:
    """Of two files the one with comments wins, if it is there."""
    if named := places.environ.get("OPENCODE_CONFIG", ""):
        return Path(named).expanduser()
    folder = places.folder("XDG_CONFIG_HOME", ".config") / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.exists() else folder / "opencode.json"
