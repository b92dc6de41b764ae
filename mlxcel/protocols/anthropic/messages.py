"""POST /v1/messages and what it counts: from a body to a request, and back."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.cache import ANONYMOUS, CacheUse
from mlxcel.core.errors import BadRequest
from mlxcel.core.request import ChatPrompt, GenerationRequest, Lane
from mlxcel.core.settings import Settings
from mlxcel.protocols.anthropic.answer import message_body
from mlxcel.protocols.anthropic.blocks import read_conversation, refuse_image, require_input
from mlxcel.protocols.anthropic.output import read_output
from mlxcel.protocols.anthropic.stream import MessageEncoder
from mlxcel.protocols.anthropic.tools import check_tools, read_tool_choice, read_tools
from mlxcel.protocols.base import Head, ReadRules
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.envelope import check_model
from mlxcel.protocols.openai.numbers import INT32_MAX, given
from mlxcel.protocols.openai.sampling import Draw, draw_seed, read_sampling, read_stop

ID_PREFIX = "msg_"
SAMPLING = ("temperature", "top_p", "top_k")
"""The others are the server's on this route."""
SHOWN = ("enabled", "adaptive")
"""Kinds of `thinking` whose answers show it."""


def new_id() -> str:
    return f"{ID_PREFIX}{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRead:
    request: GenerationRequest
    stream: bool
    shows_thinking: bool
    ignored_tools: tuple[str, ...] = ()
    ping_s: float | None = None
    is_counted: bool = True

    @property
    def requests(self) -> Sequence[GenerationRequest]:
        return (self.request,)

    def encoder(self, head: Head) -> MessageEncoder:
        return MessageEncoder(head, shows_thinking=self.shows_thinking)

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]:
        return message_body(head, answer, shows_thinking=self.shows_thinking)


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    lane: Lane = Lane.NORMAL,
    draw: Draw = draw_seed,
) -> MessagesRead:
    """Raises BadRequest, ModelNotFound or NotSupported, in the order of the contract
    (http-anthropic, 2). Unknown keys are accepted."""
    fields = Reader(body)
    check_model(fields, rules)
    stream = fields.boolean("stream") is True
    max_tokens = given(fields.integer("max_tokens", minimum=0), settings.sampling.max_tokens)
    messages, image = read_conversation(fields, pins_stamp=rules.pins_stamp)
    tools, ignored = read_tools(fields, is_strict=rules.strict_tools)
    thinking = fields.nested("thinking")
    kind = None if thinking is None else thinking.string("type")
    budget = None if thinking is None else thinking.integer("budget_tokens", minimum=-1)
    sampling = read_sampling(
        Reader({name: body.get(name) for name in SAMPLING}), settings.sampling, rules.fixed, draw
    )
    request = GenerationRequest(
        id=request_id,
        prompt=ChatPrompt(messages=messages, tools=tools),
        settings=settings,
        sampling=sampling,
        max_tokens=min(max_tokens, INT32_MAX),
        stop=read_stop(fields, rules.fixed.stop, "stop_sequences"),
        dry_breakers=settings.sampling.dry_sequence_breakers,
        lane=lane,
        ignore_eos=rules.fixed.ignore_eos,
        thinking_budget=budget,
        remembers_thoughts=kind in SHOWN,
        cache=CacheUse(session=_session(fields)),
        received_s=received_s,
    )
    refuse_image(image)
    require_input(fields, messages)
    check_tools(fields, tools)
    choice = read_tool_choice(fields, tools)
    output = read_output(fields, choice)
    if budget is not None and budget > request.max_tokens:
        rule = f"must be <= max_tokens ({request.max_tokens}), got {budget}"
        raise BadRequest(f"thinking.budget_tokens {rule}", param="thinking.budget_tokens")
    return MessagesRead(
        request=replace(
            request,
            prompt=ChatPrompt(messages=messages, tools=tools, tool_choice=choice),
            output=output,
        ),
        stream=stream,
        shows_thinking=kind in SHOWN,
        ignored_tools=ignored,
    )


def _session(fields: Reader) -> str:
    metadata = fields.nested("metadata")
    name = None if metadata is None else metadata.string("user_id")
    return name if name else ANONYMOUS
