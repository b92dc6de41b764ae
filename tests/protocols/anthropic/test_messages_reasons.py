"""Why a message ended, in Anthropic's words; the first that fits (http-anthropic, 8)."""

import pytest

from mlxcel.core.events import FinishReason
from mlxcel.protocols.anthropic.answer import stop_reason, stop_sequence

SAID = {
    FinishReason.STOP: "stop_sequence",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CONTEXT: "max_tokens",
    FinishReason.INDENT: "max_tokens",
    FinishReason.TIME: "max_tokens",
    FinishReason.EOS: "end_turn",
    FinishReason.STRUCTURE: "end_turn",
    FinishReason.LOOP: "end_turn",
    FinishReason.TOOL_CALLS: "end_turn",
}


@pytest.mark.parametrize("reason", FinishReason)
def test_reasons(reason: FinishReason) -> None:
    assert stop_reason(reason, has_calls=False) == SAID[reason]
    assert stop_reason(reason, has_calls=True) == "tool_use"


@pytest.mark.parametrize("reason", FinishReason)
def test_only_a_stop_has_a_sequence(reason: FinishReason) -> None:
    assert stop_sequence(reason, "x") == ("x" if reason is FinishReason.STOP else None)
