"""The same conversation is the same prompt in every dialect: token for token, and to the cache."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings

from mlxcel.core.request import GenerationRequest
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.wording import Worded, word
from mlxcel.protocols.anthropic import messages
from mlxcel.protocols.openai import chat
from mlxcel.protocols.responses import create
from mlxcel.text.bytes import BYTE_TEMPLATE
from tests.generation.dialects import (
    STYLES,
    Answer,
    Conversation,
    Json,
    Style,
    chat_body,
    conversations,
    messages_body,
    responses_body,
)
from tests.generation.speaking import CALLS, THINKS, chat_model
from tests.protocols.samples import RULES, SETTINGS
from tests.whole.agents.record import ROOT

AGENTS = (ROOT / "template.jinja").read_text("utf-8")
MODELS = {
    "thinks": chat_model(AGENTS, (*THINKS, *CALLS), caches=True),
    "drops-thoughts": chat_model(AGENTS, (*THINKS, *CALLS)),
    "shows-ids": chat_model(BYTE_TEMPLATE, THINKS, caches=True),
    "tools-in-words": chat_model(BYTE_TEMPLATE.replace("tool_calls", "none"), caches=True),
}
PHASES = (Phase.generate,)
"""To make a conversation that differs smaller takes minutes: each is some hundred draws."""
CODECS: dict[str, tuple[Any, Any]] = {
    "chat": (chat, chat_body),
    "messages": (messages, messages_body),
    "responses": (create, responses_body),
}


def read(codec: Any, body: Json, **more: Any) -> Any:
    return codec.read(body, request_id="r", settings=SETTINGS, received_s=0.0, rules=RULES, **more)


def worded(request: GenerationRequest, model: ChatModel) -> Worded:
    return word(request, model, window=0)


@pytest.mark.parametrize("name", MODELS)
@given(told=conversations(), style=STYLES)
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_each_dialect_makes_the_same_prompt(name: str, told: Conversation, style: Style) -> None:
    model = MODELS[name]
    found = {
        dialect: worded(read(codec, write(told, style)).request, model)
        for dialect, (codec, write) in CODECS.items()
    }
    texts = {dialect: each.prompt.text for dialect, each in found.items()}
    assert texts["messages"] == texts["chat"]
    assert texts["responses"] == texts["chat"]
    assert found["messages"].ids == found["responses"].ids == found["chat"].ids
    # What was read for one of them is found by the others.
    assert found["messages"].tag == found["responses"].tag == found["chat"].tag


@pytest.mark.parametrize("name", MODELS)
@given(told=conversations(), style=STYLES)
@settings(max_examples=20, deadline=None, phases=PHASES)
def test_by_id_it_is_the_same_but_for_old_thoughts(
    name: str, told: Conversation, style: Style
) -> None:
    """A chain of two responses: the first has all turns but the last."""
    model = MODELS[name]
    *earlier, last = told.turns
    # Items are kept, instructions are sent again.
    kept, sent = (told.system, "") if style.has_system_item else ("", told.system)
    before = Conversation(system=kept, turns=earlier or ["hi"])
    after = Conversation(system=sent, tools=told.tools, turns=[last])
    history = read(create, responses_body(before, style)).input_items
    chained = read(create, responses_body(after, style), history=history)
    bare = [_without_thoughts(turn) for turn in before.turns]
    whole = Conversation(system=told.system, tools=told.tools, turns=[*bare, last])
    found = worded(chained.request, model)
    wanted = worded(read(chat, chat_body(whole, style)).request, model)
    assert (found.ids, found.tag) == (wanted.ids, wanted.tag)


def _without_thoughts(turn: str | Answer) -> str | Answer:
    if isinstance(turn, str):
        return turn
    return Answer(text=turn.text, calls=turn.calls)
