"""POST /v1/chat/completions: from a body to a request, and back to bodies and chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.request import ChatPrompt, GenerationRequest, Lane
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import Head, ReadRules
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.answer import chat_body
from mlxcel.protocols.openai.cache_use import read_cache_use
from mlxcel.protocols.openai.chunks import ChatEncoder
from mlxcel.protocols.openai.envelope import check_model, read_choices, read_stream
from mlxcel.protocols.openai.extras import read_switch
from mlxcel.protocols.openai.logprobs import read_top_logprobs
from mlxcel.protocols.openai.messages import read_messages, refuse_media, require_input
from mlxcel.protocols.openai.numbers import given
from mlxcel.protocols.openai.output import read_output
from mlxcel.protocols.openai.penalties import read_breaker_texts
from mlxcel.protocols.openai.sampling import (
    Draw,
    draw_seed,
    read_max_tokens,
    read_sampling,
    read_stop,
)
from mlxcel.protocols.openai.steering import read_loop, read_thinking_budget
from mlxcel.protocols.openai.template_kwargs import read_template_kwargs
from mlxcel.protocols.openai.tools import check_tool_count, read_tool_choice, read_tools
from mlxcel.protocols.openai.types import CHAT, check_types

ID_PREFIX = "chatcmpl-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRead:
    request: GenerationRequest
    stream: bool
    include_usage: bool
    reasoning_alias: str | None
    ping_s: float | None = None
    is_counted: bool = True

    @property
    def requests(self) -> Sequence[GenerationRequest]:
        return (self.request,)

    def encoder(self, head: Head) -> ChatEncoder:
        return ChatEncoder(
            head,
            choices=self.request.choices,
            include_usage=self.include_usage,
            reasoning_alias=self.reasoning_alias,
        )

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]:
        return chat_body(
            head,
            answer,
            has_logprobs=self.request.top_logprobs is not None,
            reasoning_alias=self.reasoning_alias,
        )


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    lane: Lane = Lane.NORMAL,
    draw: Draw = draw_seed,
) -> ChatRead:
    """Raises BadRequest, ModelNotFound or NotSupported. Unknown root keys are accepted.

    Fields are read in the order in which the contract checks them (http-openai, 3).
    """
    fields = Reader(body)
    check_model(fields, rules)
    check_types(fields, CHAT)
    stream, include_usage = read_stream(fields)
    messages = read_messages(fields)
    require_input(fields, messages)
    top_logprobs = read_top_logprobs(fields)
    sampling = read_sampling(fields, settings.sampling, rules.fixed, draw)
    max_tokens = read_max_tokens(fields, settings.sampling.max_tokens)
    request = GenerationRequest(
        id=request_id,
        prompt=ChatPrompt(
            messages=messages,
            kwargs=read_template_kwargs(fields),
            tools=read_tools(fields),
            echo=read_switch(fields, "echo"),
        ),
        settings=settings,
        sampling=sampling,
        max_tokens=max_tokens,
        stop=read_stop(fields, rules.fixed.stop),
        dry_breakers=read_breaker_texts(fields, settings.sampling),
        choices=read_choices(fields),
        lane=lane,
        top_logprobs=top_logprobs,
        ignore_eos=given(fields.boolean("ignore_eos"), rules.fixed.ignore_eos),
        loop=read_loop(fields),
        # It is ended by the id of a stream that runs: no other answer has one yet.
        is_controllable=stream and fields.boolean("reasoning_control") is True,
        cache=read_cache_use(fields),
        received_s=received_s,
    )
    return ChatRead(
        request=_steered(fields, request),
        stream=stream,
        include_usage=include_usage,
        reasoning_alias=rules.reasoning_alias,
    )


def _steered(fields: Reader, request: GenerationRequest) -> GenerationRequest:
    """What is checked when all fields have their types, and the model's media are known."""
    refuse_media(fields)
    check_tool_count(fields, request.chat.tools)
    output = read_output(fields)
    choice = read_tool_choice(fields, request.chat.tools, output)
    budget = read_thinking_budget(fields, request.max_tokens)
    prompt = replace(request.chat, tool_choice=choice)
    return replace(request, prompt=prompt, output=output, thinking_budget=budget)
