"""Hears the answers of conversations, and commits each that has ended well."""

from collections.abc import Sequence
from dataclasses import replace

from mlxcel.core.answer import Choice
from mlxcel.core.errors import BadRequest
from mlxcel.core.events import Event, Finished
from mlxcel.core.request import GenerationRequest, Message
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.collect import Drafts
from mlxcel.generation.conversations import ConversationService
from mlxcel.generation.history import with_messages
from mlxcel.generation.message_ends import message_ends
from mlxcel.generation.prepare import Prepared
from mlxcel.generation.render import render_said, template_kwargs
from mlxcel.link.messages import RowEvent


def conversation_listeners(
    request: GenerationRequest,
    prepared: Prepared,
    model: ChatModel,
    conversations: ConversationService | None,
) -> "list[ConversationListener]":
    """Empty where nothing of the answer is kept, or it belongs to no conversation."""
    tag = prepared.submit.cache
    if conversations is None or tag is None or not tag.is_conversation:
        return []
    return [ConversationListener(request, prepared, model, conversations)]


class ConversationListener:
    """Of several choices the first is what goes on."""

    def __init__(
        self,
        request: GenerationRequest,
        prepared: Prepared,
        model: ChatModel,
        conversations: ConversationService,
    ) -> None:
        self._request = request
        self._prepared = prepared
        self._model = model
        self._conversations = conversations
        self._drafts = Drafts()

    def hear(self, row: RowEvent) -> None:
        """Of ids nothing is to be known: the worker has them."""

    def told(self, event: Event) -> None:
        self._drafts.take(event)
        if isinstance(event, Finished):
            self._commit(self._drafts.ended()[0])

    def _commit(self, answer: Choice) -> None:
        conversation = self._request.cache.conversation
        assert conversation is not None, "asked before anybody listened"
        rendered = with_messages(
            self._prepared.request, _joined(self._prepared.request, self._prepared, answer)
        )
        model = self._model

        def ends(tokens: Sequence[int]) -> list[int]:
            return ends_of(rendered, model, tokens)

        messages = _joined(self._request, self._prepared, answer)
        self._conversations.commit(conversation, messages, ends)


def ends_of(request: GenerationRequest, model: ChatModel, tokens: Sequence[int]) -> list[int]:
    """Renders the conversation once for each of its messages."""
    kwargs = template_kwargs(request, model)
    messages = request.chat.messages
    texts = []
    for count in range(1, len(messages) + 1):
        try:
            texts.append(render_said(with_messages(request, messages[:count]), model, kwargs))
        except BadRequest:
            # The template wants another message after this one: both end together.
            texts.append("")
    return message_ends(texts, model.text.encode, tokens)


def _joined(request: GenerationRequest, prepared: Prepared, answer: Choice) -> tuple[Message, ...]:
    """The messages of a request with their answer: a turn of its own, or the rest of the last."""
    messages = request.chat.messages
    said = Message(
        role="assistant", text=answer.text, reasoning=answer.reasoning, calls=answer.calls
    )
    if not prepared.continues:
        return (*messages, said)
    begun = messages[-1]
    text = said.text if prepared.echoed else begun.text + said.text
    return (*messages[:-1], replace(begun, text=text, calls=said.calls))
