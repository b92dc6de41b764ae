"""The messages of a request as they are rendered: what a client sent, made to read as the turns
before it did, so that what was read of them is found again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlxcel.core.request import GenerationRequest, Message
from mlxcel.generation import tags
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.reecho import ReasoningEcho, Trail, with_thoughts


def with_echo(
    request: GenerationRequest,
    model: ChatModel,
    kwargs: Mapping[str, Any],
    echo: ReasoningEcho | None,
) -> tuple[GenerationRequest, Trail | None]:
    """With the thoughts of earlier answers, and what those of the next are to be kept under."""
    if echo is None or model.marks is None or not request.remembers_thoughts:
        return request, None
    if not tags.is_cached(request, model):
        return request, None
    start = Trail.start(
        tags.template_digest(model, kwargs, is_begun=False),
        tags.tools_digest(request.chat.tools),
        tags.session_of(request.cache).encode(),
    )
    messages, trail = with_thoughts(request.chat.messages, start, echo)
    return with_messages(request, messages), trail


def with_messages(request: GenerationRequest, messages: Sequence[Message]) -> GenerationRequest:
    return replace(request, prompt=replace(request.chat, messages=tuple(messages)))
