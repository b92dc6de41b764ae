"""Zed: an OpenAI-compatible provider in its settings; the key never stands there.

https://zed.dev/docs/ai/use-api-access#openai-compatible
"""

from mlxcel.connect.setup import KEY_VARIABLE, NO_KEY, PROVIDER, Change, Places, Server, Setup


def setup(server: Server, places: Places) -> Setup:
    # All of those without a default in older versions.
    capabilities = {
        "tools": True,
        "images": False,
        "parallel_tool_calls": False,
        "prompt_cache_key": False,
    }
    model = {
        "name": server.model,
        "display_name": server.model,
        "max_tokens": server.window,
        "max_output_tokens": server.output,
        "capabilities": capabilities,
    }
    provider = {"api_url": server.v1, "available_models": [model]}
    settings = {
        "language_models": {"openai_compatible": {PROVIDER: provider}},
        "agent": {"default_model": {"provider": PROVIDER, "model": server.model}},
    }
    path = places.folder("XDG_CONFIG_HOME", ".config") / "zed" / "settings.json"
    wanted = "to the key of the server" if server.key else f"to {NO_KEY}: it wants some key"
    note = f"start Zed with {KEY_VARIABLE} set {wanted}; or type it into Settings, LLM Providers"
    return Setup(changes=(Change(path=path, form="json", settings=settings),), notes=(note,))
