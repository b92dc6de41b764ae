"""Claude Code: variables in the `env` block of its user settings.

https://code.claude.com/docs/en/settings, /env-vars and /llm-gateway.
"""

from mlxcel.connect.setup import NO_KEY, Change, Places, Server, Setup

# The names it asks for by itself: for small tasks, for plans, for agents below an agent.
ROLES = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)


def setup(server: Server, places: Places) -> Setup:
    env = {
        "ANTHROPIC_BASE_URL": server.url,  # it appends /v1/messages itself
        # A token, not ANTHROPIC_API_KEY, which it asks the user to approve.
        "ANTHROPIC_AUTH_TOKEN": server.key or NO_KEY,
        **dict.fromkeys(ROLES, server.model),
        # It takes a model it does not know for one of 200,000 tokens.
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(server.window),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(server.output),
    }
    change = Change(
        path=places.folder("CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
        form="json",
        settings={"env": env},
        holds_key=server.key is not None,
    )
    return Setup(changes=(change,), notes=_notes(places))


def _notes(places: Places) -> tuple[str, ...]:
    if not places.environ.get("ANTHROPIC_API_KEY"):
        return ()
    return ("unset ANTHROPIC_API_KEY: Claude Code would send it to this server as well",)
