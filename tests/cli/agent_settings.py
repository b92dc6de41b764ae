"""What the files of each agent hold once it is connected to a server that serves `tiny`."""

from typing import Any

WINDOW, OUTPUT = 512, 128
"""Tokens, of the model of tests/http/site.py."""

MODEL_FACTS = {
    "max_tokens": OUTPUT,
    "max_input_tokens": WINDOW,
    "max_output_tokens": OUTPUT,
    "input_cost_per_token": 0,
    "output_cost_per_token": 0,
    "litellm_provider": "openai",
    "mode": "chat",
}


def expected(agent: str, url: str, key: str | None) -> dict[str, Any]:
    """Every file of an agent that had none."""
    v1 = f"{url}/v1"
    match agent:
        case "claude-code":
            names = ("OPUS", "SONNET", "HAIKU")
            env = {
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_AUTH_TOKEN": key or "none",
                "ANTHROPIC_MODEL": "tiny",
                **{f"ANTHROPIC_DEFAULT_{name}_MODEL": "tiny" for name in names},
                "CLAUDE_CODE_SUBAGENT_MODEL": "tiny",
                "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "512",
                "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "128",
            }
            return {".claude/settings.json": {"env": env}}
        case "codex":
            provider = {"name": "mlxcel", "base_url": v1, "wire_api": "responses"}
            if key:
                provider["env_key"] = "MLXCEL_API_KEY"
            settings = {"model": "tiny", "model_provider": "mlxcel", "model_context_window": WINDOW}
            return {".codex/config.toml": settings | {"model_providers": {"mlxcel": provider}}}
        case "opencode":
            options = {"baseURL": v1} | ({"apiKey": key} if key else {})
            limit = {"context": WINDOW, "output": OUTPUT}
            models = {"tiny": {"name": "tiny", "limit": limit}}
            package = {"npm": "@ai-sdk/openai-compatible", "name": "mlxcel"}
            return {
                ".config/opencode/opencode.json": {
                    "$schema": "https://opencode.ai/config.json",
                    "provider": {"mlxcel": package | {"options": options, "models": models}},
                    "model": "mlxcel/tiny",
                }
            }
        case "zed":
            flags = ("images", "parallel_tool_calls", "prompt_cache_key")
            model = {
                "name": "tiny",
                "display_name": "tiny",
                "max_tokens": WINDOW,
                "max_output_tokens": OUTPUT,
                "capabilities": {"tools": True} | dict.fromkeys(flags, False),
            }
            ours = {"mlxcel": {"api_url": v1, "available_models": [model]}}
            return {
                ".config/zed/settings.json": {
                    "language_models": {"openai_compatible": ours},
                    "agent": {"default_model": {"provider": "mlxcel", "model": "tiny"}},
                }
            }
        case "aider":
            conf = {"model": "openai/tiny", "openai-api-base": v1, "openai-api-key": key or "none"}
            facts = {"openai/tiny": MODEL_FACTS}
            return {".aider.conf.yml": conf, ".aider.model.metadata.json": facts}
        case _:
            named = {"name": "mlxcel", "provider": "openai", "model": "tiny", "apiBase": v1}
            model = named | ({"apiKey": key} if key else {})
            model |= {"roles": ["chat", "edit", "apply"], "capabilities": ["tool_use"]}
            sizes = {"contextLength": WINDOW, "maxTokens": OUTPUT}
            model |= {"defaultCompletionOptions": sizes}
            head = {"name": "Local", "version": "1.0.0", "schema": "v1"}
            return {".continue/config.yaml": head | {"models": [model]}}
