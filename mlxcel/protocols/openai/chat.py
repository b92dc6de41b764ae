"""POST /v1/chat/completions: from a body to a request, and back to bodies and chunks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import ModelNotFound
from mlxcel.core.events import Finished
from mlxcel.core.request import ChatPrompt, GenerationRequest
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import Head, ReadRules
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.answer import ChatEncoder, chat_body
from mlxcel.protocols.openai.messages import read_messages, refuse_media
from mlxcel.protocols.openai.penalties import read_breaker_texts
from mlxcel.protocols.openai.refused import check_refused
from mlxcel.protocols.openai.sampling import (
    Draw,
    draw_seed,
    read_max_tokens,
    read_sampling,
    read_stop,
)
from mlxcel.protocols.openai.template_kwargs import read_template_kwargs

ID_PREFIX = "chatcmpl-"
INERT_STRINGS = ("user", "prompt_cache_key")
INERT_SWITCHES = ("cache_prompt", "parallel_tool_calls")
INERT_COUNTS = ("min_pattern_size", "min_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRead:
    request: GenerationRequest
    stream: bool
    include_usage: bool

    def encoder(self, head: Head) -> ChatEncoder:
        return ChatEncoder(head, include_usage=self.include_usage)

    def answer(self, head: Head, text: str, finished: Finished) -> dict[str, Any]:
        return chat_body(head, text, finished)


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    draw: Draw = draw_seed,
) -> ChatRead:
    """Raises BadField, ModelNotFound or NotSupported. Unknown root keys are accepted."""
    fields = Reader(body)
    check_model(fields, rules)
    stream = fields.boolean("stream") or False
    include_usage = _include_usage(fields) if stream else False
    messages = read_messages(fields)
    check_refused(fields)
    _check_inert(fields)
    request = GenerationRequest(
        id=request_id,
        prompt=ChatPrompt(messages=messages, kwargs=read_template_kwargs(fields)),
        settings=settings,
        sampling=read_sampling(fields, settings.sampling, draw),
        max_tokens=read_max_tokens(fields, settings.sampling.max_tokens),
        stop=read_stop(fields),
        dry_breakers=read_breaker_texts(fields, settings.sampling),
        received_s=received_s,
    )
    # Whatever else is wrong with the body is told first.
    refuse_media(fields)
    return ChatRead(request=request, stream=stream, include_usage=include_usage)


def check_model(fields: Reader, rules: ReadRules) -> None:
    name = fields.string("model")
    if name is None:
        if rules.require_model:
            raise fields.refuse("model", f'is required; this server serves "{rules.served[0]}"')
    elif rules.refuse_unknown and name not in rules.served:
        raise ModelNotFound(name, rules.served)


def _include_usage(fields: Reader) -> bool:
    options = fields.nested("stream_options")
    return options is not None and options.boolean("include_usage") is True


def _check_inert(fields: Reader) -> None:
    """Fields that change nothing here still have a type: a wrong one is the client's mistake."""
    for name in INERT_STRINGS:
        fields.string(name)
    for name in INERT_SWITCHES:
        fields.boolean(name)
    for name in INERT_COUNTS:
        fields.integer(name, minimum=0)
