"""How the next turn of a conversation will begin: worth reading before it comes, for a model whose
state cannot be cut back to where a new prompt parts from what was generated (engine contract,
cache 7).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from mlxcel.core.answer import Choice
from mlxcel.core.errors import BadRequest
from mlxcel.core.request import GenerationRequest, Message
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.history import with_messages
from mlxcel.generation.prepare import Prepared
from mlxcel.generation.render import render, template_kwargs
from mlxcel.link.messages import Warm, pack_tokens, unpack_tokens
from mlxcel.text.shared import shared_chars
from mlxcel.text.tokenizer import TextModel

PROBES = ("a", "0")
"""Two things a client may say next: what does not depend on it stands fast."""
TAIL = 64
"""Tokens in which the opening of a turn is looked for."""


def warm_for(
    prepared: Prepared, answer: Choice, said: Sequence[int], *, model: ChatModel, window: int
) -> Warm | None:
    """`said` are the ids of the answer. None where the next prompt will begin with all that was
    read and said anyway, or is not to be known."""
    tag = prepared.submit.cache
    if tag is None or prepared.continues:
        return None
    try:
        ids = _beginning(prepared, answer, model)
    except BadRequest:
        # The template wants something else to come next.
        return None
    read = [*unpack_tokens(prepared.submit.tokens), *said]
    if not ids or 0 < window <= len(ids) or ids[: len(read)] == read:
        return None
    return Warm(tokens=pack_tokens(ids), tag=replace(tag, boundary=len(ids)))


def _beginning(prepared: Prepared, answer: Choice, model: ChatModel) -> list[int]:
    """The tokens of the next prompt up to where the client's words are."""
    request = prepared.request
    told = (*request.chat.messages, _sent_back(request, answer, prepared))
    kwargs = template_kwargs(request, model)
    first, second = (
        render(with_messages(request, (*told, _next(answer, probe))), model, kwargs).text
        for probe in PROBES
    )
    ids, (count,) = model.text.encode_marked(first, shared_chars(first, second))
    return ids[: _settled(model.text, ids, count)]


def _sent_back(request: GenerationRequest, answer: Choice, prepared: Prepared) -> Message:
    """The answer as the client will show it. Its thoughts are there if we put them back, or if the
    client sends such things, which earlier turns tell."""
    is_recalled = prepared.trail is not None and not answer.calls
    sends_thoughts = any(message.reasoning for message in request.chat.messages)
    has_thoughts = is_recalled or sends_thoughts
    return Message(
        role="assistant",
        text=answer.text,
        reasoning=answer.reasoning if has_thoughts else "",
        calls=answer.calls,
    )


def _next(answer: Choice, probe: str) -> Message:
    if answer.calls:
        return Message(role="tool", text=probe, call_id=answer.calls[0].id)
    return Message(role="user", text=probe)


def _settled(text: TextModel, ids: Sequence[int], count: int) -> int:
    """Of `count` tokens those that stay the same whatever follows: text around a special token is
    never joined with what is beyond it."""
    start = max(0, count - TAIL)
    specials = text.vocabulary.specials_among(ids[start:count])
    ends = [place + 1 for place in range(start, count) if ids[place] in specials]
    return ends[-1] if ends else count
