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
    whole = {"skip_chat_parsing": False, "prefill_assistant": True, "reasoning": plain | reasoning}
    return ChatOptions.from_options(whole | (top or {}))


def test_shipped_values_ask_for_nothing() -> None:
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
    ],
)
def test_each_option_is_read(found: ChatOptions, expected: ChatOptions) -> None:
    assert found == expected
