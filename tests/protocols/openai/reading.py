"""Reading a body in a test: `chat_read(temperature=0)`, `completion_read(echo=True)`."""

from collections.abc import Callable
from typing import Any

from mlxcel.core.settings import Settings
from mlxcel.protocols.base import ReadRules
from mlxcel.protocols.openai import chat, completions
from tests.protocols.samples import RULES, SETTINGS

HI = [{"role": "user", "content": "hi"}]
DRAWN = 123456


def chat_read(
    settings: Settings = SETTINGS, rules: ReadRules = RULES, **fields: Any
) -> chat.ChatRead:
    return chat.read(
        {"model": "tiny", "messages": HI} | fields,
        request_id="chatcmpl-0",
        settings=settings,
        received_s=5.0,
        rules=rules,
        draw=lambda: DRAWN,
    )


def completion_read(
    settings: Settings = SETTINGS,
    rules: ReadRules = RULES,
    draw: Callable[[], int] = lambda: DRAWN,
    **fields: Any,
) -> completions.CompletionRead:
    return completions.read(
        {"model": "tiny", "prompt": "hi"} | fields,
        request_id="cmpl-0",
        settings=settings,
        received_s=5.0,
        rules=rules,
        draw=draw,
    )
