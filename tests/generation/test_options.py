from typing import Any

import pytest

from mlxcel.generation.options import ChatOptions, ReasoningFormat


def options(top: dict[str, Any] | None = None, **reasoning: Any) -> ChatOptions:
    plain = {
        "enabled": "auto",
        "effort": "default",
        "preserve": False,
        "format": "auto",
        "budget_message": None,
    }
    whole = {
        "skip_chat_parsing": False,
        "prefill_assistant": True,
        "spm_infill": False,
        "reasoning": plain | reasoning,
        "cache": cache(enabled=False),
    }
    return ChatOptions.from_options(whole | (top or {}))


def cache(prefix_dir: str | None = None, echo: int = 0, **prompt: Any) -> dict[str, Any]:
    plain = {"enabled": True, "capacity_bytes": None, "ram_mib": None}
    return {
        "prompt": plain | prompt,
        "prefix_dir": prefix_dir,
        "reasoning_echo_max_bytes": echo,
    }


def test_all_that_is_off_asks_for_nothing() -> None:
    assert options() == ChatOptions()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(options(enabled="on"), ChatOptions(thinks=True), id="on"),
        pytest.param(options(enabled="off"), ChatOptions(thinks=False), id="off"),
        pytest.param(options(effort="high"), ChatOptions(effort="high"), id="effort"),
        pytest.param(options(preserve=True), ChatOptions(preserves_reasoning=True), id="preserve"),
        pytest.param(options(budget_message="So."), ChatOptions(budget_message="So."), id="say"),
        pytest.param(options({"skip_chat_parsing": True}), ChatOptions(parses=False), id="raw"),
        pytest.param(
            options({"prefill_assistant": False}), ChatOptions(prefills=False), id="no-prefill"
        ),
        pytest.param(
            options(format="deepseek-legacy"),
            ChatOptions(format=ReasoningFormat.LEGACY),
            id="format",
        ),
        pytest.param(options({"cache": cache()}), ChatOptions(caches=True), id="cache"),
        pytest.param(
            options({"cache": cache(prefix_dir="x", echo=5)}),
            ChatOptions(caches=True, marks_system=True, echo_bytes=5),
            id="cache-words",
        ),
        pytest.param(options({"cache": cache(ram_mib=0)}), ChatOptions(), id="no-cache-memory"),
        pytest.param(
            options({"cache": cache(ram_mib=0, capacity_bytes=9)}),
            ChatOptions(caches=True),
            id="bytes-beat-mib",
        ),
    ],
)
def test_each_option_is_read(found: ChatOptions, expected: ChatOptions) -> None:
    assert found == expected
