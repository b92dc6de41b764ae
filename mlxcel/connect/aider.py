"""aider: its settings, and beside them what it should know of a model that its list lacks.

https://aider.chat/docs/config/aider_conf.html and /adv-model-settings.html
"""

from mlxcel.connect.setup import NO_KEY, Change, Places, Server, Setup


def setup(server: Server, places: Places) -> Setup:
    # The first part picks the client, and is not sent.
    model = f"openai/{server.model}"
    settings = {
        "model": model,
        "openai-api-base": server.v1,
        "openai-api-key": server.key or NO_KEY,
    }
    facts = {
        "max_tokens": server.output,
        "max_input_tokens": server.window,
        "max_output_tokens": server.output,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    return Setup(
        changes=(
            Change(
                path=places.home / ".aider.conf.yml",
                form="yaml",
                settings=settings,
                holds_key=server.key is not None,
            ),
            Change(
                path=places.home / ".aider.model.metadata.json",
                form="json",
                settings={model: facts},
            ),
        )
    )
