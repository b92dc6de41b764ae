"""Reading a body in a test: `messages_read(temperature=0)`."""

from collections.abc import Sequence
from typing import Any

from mlxcel.core.request import Message
from mlxcel.core.settings import Settings
from mlxcel.protocols.anthropic import messages
from mlxcel.protocols.base import ReadRules
from tests.protocols.samples import RULES, SETTINGS

HI = {"role": "user", "content": "hi"}
DRAWN = 123456
CLOCK = {"name": "clock", "input_schema": {"type": "object", "properties": {}}}


def messages_read(
    settings: Settings = SETTINGS, rules: ReadRules = RULES, **fields: Any
) -> messages.MessagesRead:
    return messages.read(
        {"model": "tiny", "messages": [HI]} | fields,
        request_id="msg_0",
        settings=settings,
        received_s=5.0,
        rules=rules,
        draw=lambda: DRAWN,
    )


def turns(*sent: Any, **fields: Any) -> Sequence[Message]:
    """What the template is given for (role, content) pairs."""
    said = [{"role": role, "content": content} for role, content in sent]
    return messages_read(messages=said, **fields).request.chat.messages
