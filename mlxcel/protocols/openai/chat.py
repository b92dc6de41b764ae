"""POST /v1/chat/completions: from a body to a request, and back to bodies and chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.errors import ModelNotFound
from mlxcel.core.request import ChatPrompt, GenerationRequest, Lane
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import Head, ReadRules
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.answer import chat_body
from mlxcel.protocols.openai.cache_use import read_cache_use
from mlxcel.protocols.openai.chunks import ChatEncoder
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
from mlxcel.protocols.openai.tools import read_tool_choice, read_tools
from mlxcel.protocols.openai.types import check_types

ID_PREFIX = "chatcmpl-"
CHOICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRead:
    request: GenerationRequest
    stream: bool
    include_usage: bool
    reasoning_alias: str | None

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
    check_types(fields)
    stream = fields.boolean("stream") or False
    include_usage = _include_usage(fields) if stream else False
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
        choices=given(fields.integer("n", minimum=1, maximum=CHOICES), 1),
        lane=lane,
        top_logprobs=top_logprobs,
        ignore_eos=given(fields.boolean("ignore_eos"), rules.fixed.ignore_eos),
        loop=read_loop(fields),
        output=read_output(fields),
        cache=read_cache_use(fields),
        received_s=received_s,
    )
    _check_inert(fields)
    return ChatRead(
        request=_with_choice_and_budget(fields, request),
        stream=stream,
        include_usage=include_usage,
        reasoning_alias=rules.reasoning_alias,
    )


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
    fields.boolean("parallel_tool_calls")
    if fields.boolean("reasoning_control"):
        rule = "true is not supported by this server; what works is false"
        raise fields.refuse("reasoning_control", rule)


def _with_choice_and_budget(fields: Reader, request: GenerationRequest) -> GenerationRequest:
    """What is checked when all fields have their types, and the model's media are known."""
    refuse_media(fields)
    choice = read_tool_choice(fields, request.prompt.tools, request.output)
    budget = read_thinking_budget(fields, request.max_tokens)
    prompt = replace(request.prompt, tool_choice=choice)
    return replace(request, prompt=prompt, thinking_budget=budget)
