"""Continue: a model in its `config.yaml`.

https://docs.continue.dev/reference
"""

from typing import Any

from mlxcel.connect.setup import PROVIDER, Change, ConnectFailed, Places, Server, Setup


def setup(server: Server, places: Places) -> Setup:
    """Raises ConnectFailed where its settings still have the old form."""
    folder = places.folder("CONTINUE_GLOBAL_DIR", ".continue")
    path = folder / "config.yaml"
    if not path.exists() and (old := folder / "config.json").exists():
        raise ConnectFailed(
            f"{old} has the old form, which {path.name} would hide; let Continue migrate it first"
        )
    model: dict[str, Any] = {
        "name": PROVIDER,
        "provider": "openai",
        "model": server.model,
        "apiBase": server.v1,
    }
    if server.key:
        model["apiKey"] = server.key
    model |= {
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use"],
        "defaultCompletionOptions": {"contextLength": server.window, "maxTokens": server.output},
    }
    change = Change(
        path=path,
        form="yaml",
        fresh={"name": "Local", "version": "1.0.0", "schema": "v1"},
        settings={"models": [model]},
        holds_key=server.key is not None,
    )
    return Setup(changes=(change,))
