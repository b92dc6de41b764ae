"""Codex: a provider of its own in `config.toml`, which it talks to in the Responses dialect.

https://developers.openai.com/codex/config-reference
"""

from mlxcel.connect.setup import KEY_VARIABLE, PROVIDER, Change, Places, Server, Setup


def setup(server: Server, places: Places) -> Setup:
    provider = {
        "name": PROVIDER,
        "base_url": server.v1,
        "wire_api": "responses",  # the only one it still speaks
        # It does not start where this names a variable that is not set.
        "env_key": KEY_VARIABLE if server.key else None,
    }
    settings = {
        "model": server.model,
        "model_provider": PROVIDER,
        "model_context_window": server.window,
        "model_providers": {PROVIDER: provider},
    }
    path = places.folder("CODEX_HOME", ".codex") / "config.toml"
    notes = (f"set {KEY_VARIABLE} to the key of the server where Codex runs",)
    return Setup(
        changes=(Change(path=path, form="toml", settings=settings),),
        notes=notes if server.key else (),
    )
