"""A chat model that speaks bytes and knows the markers of thinking and of calls."""

from collections.abc import Sequence
from typing import Any

from mlxcel.core.request import ChatPrompt, GenerationRequest, Message, Tool
from mlxcel.core.sampling import SamplingParams
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.options import ChatOptions
from mlxcel.text.template import ChatTemplate
from tests.settings import settings
from tests.text.thinkers import speaker

THINKS = ("<think>", "</think>")
CALLS = ("<tool_call>", "</tool_call>")
TURNS = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"
USER_HI = Message(role="user", text="hi")
WEATHER = Tool(
    name="weather",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
    sent={"type": "function", "function": {"name": "weather"}},
)
HERMES = '{# <tool_call> {"name": tool_call.name} </tool_call> #}'
"""What tells a template whose calls are JSON in tags."""


def chat_model(
    source: str = TURNS, words: Sequence[str] = (), *, special: bool = True, **options: Any
) -> ChatModel:
    text = speaker(words, special=special)
    template = ChatTemplate(source, origin="test", special_tokens={"bos_token": "<|bos|>"})
    return ChatModel.of(text, template, ChatOptions(**options))


def asked(
    *messages: Message, prompt: dict[str, Any] | None = None, **changes: Any
) -> GenerationRequest:
    plain: dict[str, Any] = {
        "id": "r1",
        "settings": settings(),
        "sampling": SamplingParams(temperature=0.5, seed=9),
        "max_tokens": 100,
        "received_s": 100.0,
    }
    chat = ChatPrompt(messages=messages or (USER_HI,), **(prompt or {}))
    return GenerationRequest(prompt=chat, **(plain | changes))
