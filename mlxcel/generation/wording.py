"""From the prompt of a request to the tokens the model reads: a conversation through its template,
a text or tokens as they stand, code with a gap between the model's markers.

Pure and slow, as all that encodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.cache import CacheTag
from mlxcel.core.errors import BadField, BadRequest, ContextLengthExceeded
from mlxcel.core.request import ChatPrompt, GenerationRequest, InfillPrompt, TextPrompt
from mlxcel.generation import tags
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.history import with_echo
from mlxcel.generation.reecho import ReasoningEcho, Trail
from mlxcel.generation.render import render, template_kwargs
from mlxcel.text.infill import Gap, infill_text
from mlxcel.text.prefill import Places, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Worded:
    ids: list[int]
    prompt: Prompt
    request: GenerationRequest
    """As it was rendered: with thoughts that were put back."""
    tag: CacheTag | None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """What the template was given."""
    continues: bool = False
    """The answer goes on in a text that is there already: a space at its beginning is one."""
    echoed: str = ""
    """What is told again before the answer."""
    trail: Trail | None = None
    """What the thoughts of the answer are kept under; None: they are not."""


def word(
    request: GenerationRequest,
    model: ChatModel,
    *,
    window: int,
    echo: ReasoningEcho | None = None,
) -> Worded:
    """`window` as in `prepare`. Raises BadRequest (TemplateRefused and BadField are some),
    NotSupported and ContextLengthExceeded."""
    match request.prompt:
        case ChatPrompt():
            return _conversation(request, model, window, echo)
        case TextPrompt() as prompt:
            return _as_it_stands(request, prompt, model, window)
        case InfillPrompt() as prompt:
            text = infill_text(_gap(prompt), model.text.vocabulary, spm=model.options.spm_infill)
            return _plain(request, text, model, window, param="input_prefix")


def check_ids(ids: Sequence[int], vocab_size: int, param: str) -> None:
    """Raises BadField for tokens the model has no embedding of: those of a client."""
    beyond = next((token for token in ids if not 0 <= token < vocab_size), None)
    if beyond is not None:
        raise BadField(param, f"wants token ids from 0 to {vocab_size - 1}, got {beyond}")


def _conversation(
    request: GenerationRequest, model: ChatModel, window: int, echo: ReasoningEcho | None
) -> Worded:
    kwargs = template_kwargs(request, model)
    request, trail = with_echo(request, model, kwargs, echo)
    is_cached = tags.is_cached(request, model)
    places = Places(history=is_cached, system=is_cached and model.options.marks_system)
    prompt = render(request, model, kwargs, places)
    _check_length(prompt.text, model, window, "messages")
    ids, tag = tags.encoded(model, prompt, request, kwargs)
    if not ids:
        raise BadRequest("the prompt is empty; send at least one message", param="messages")
    _check_window(len(ids), window, "messages")
    return Worded(
        ids=ids,
        prompt=prompt,
        request=request,
        tag=tag,
        kwargs=kwargs,
        continues=bool(prompt.begun),
        echoed=prompt.echoed if request.chat.echo else "",
        trail=None if prompt.begun else trail,
    )


def _as_it_stands(
    request: GenerationRequest, prompt: TextPrompt, model: ChatModel, window: int
) -> Worded:
    if prompt.tokens is None:
        worded = _plain(request, prompt.text, model, window, param=prompt.param)
        text = prompt.text
    else:
        check_ids(prompt.tokens, model.text.vocabulary.size, prompt.param)
        worded = _of_ids(request, list(prompt.tokens), "", model, window, param=prompt.param)
        text = model.text.decode(prompt.tokens)
    return _echoing(worded, text) if prompt.echo else worded


def _plain(
    request: GenerationRequest, text: str, model: ChatModel, window: int, *, param: str
) -> Worded:
    _check_length(text, model, window, param)
    return _of_ids(request, model.text.encode_whole(text), text, model, window, param=param)


def _of_ids(
    request: GenerationRequest,
    ids: list[int],
    text: str,
    model: ChatModel,
    window: int,
    *,
    param: str,
) -> Worded:
    if not ids:
        raise BadRequest(
            "the prompt is empty, and this model has no token that begins a text; send one",
            param=param,
        )
    _check_window(len(ids), window, param)
    return Worded(
        ids=ids,
        prompt=Prompt(text=text),
        request=request,
        tag=tags.plain_tag(model, request),
        continues=True,
    )


def _echoing(worded: Worded, text: str) -> Worded:
    return Worded(
        ids=worded.ids,
        prompt=worded.prompt,
        request=worded.request,
        tag=worded.tag,
        continues=worded.continues,
        echoed=text,
    )


def _check_length(text: str, model: ChatModel, window: int, param: str) -> None:
    # Encoding megabytes takes half a minute. No token is empty, so that what has no more
    # characters than the window has tokens needs no closer look.
    if 0 < window < len(text):
        least = model.text.least_tokens(text)
        if least > window:
            raise ContextLengthExceeded(least, window, is_least=True, param=param)


def _check_window(length: int, window: int, param: str) -> None:
    if 0 < window <= length:
        raise ContextLengthExceeded(length, window, param=param)


def _gap(prompt: InfillPrompt) -> Gap:
    return Gap(prefix=prompt.prefix + prompt.text, suffix=prompt.suffix, extra=prompt.extra)
