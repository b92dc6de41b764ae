"""POST /v1/responses: from a body to a request, and back to a response object and its events."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.request import ChatPrompt, GenerationRequest, Lane
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import Head, ReadRules, StreamEncoder
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.cache_use import read_cache_use
from mlxcel.protocols.openai.numbers import INT32_MAX, given
from mlxcel.protocols.openai.penalties import read_breaker_texts
from mlxcel.protocols.openai.sampling import Draw, draw_seed, read_sampling, read_stop
from mlxcel.protocols.openai.steering import read_loop, read_thinking_budget
from mlxcel.protocols.openai.template_kwargs import read_template_kwargs
from mlxcel.protocols.responses.asked import Asked, read_asked
from mlxcel.protocols.responses.body import Clock, OnDone, ResponseState, whole
from mlxcel.protocols.responses.echoes import read_echoes, sums_up
from mlxcel.protocols.responses.items import (
    Find,
    Item,
    NewHex,
    Reading,
    finder,
    read_items,
    refuse_media,
    unknown,
)
from mlxcel.protocols.responses.stream import ResponsesEncoder
from mlxcel.protocols.responses.text_format import read_text
from mlxcel.protocols.responses.tools import read_choice
from mlxcel.protocols.responses.turns import (
    has_input,
    turns,
    with_instructions,
    without_thoughts,
)
from mlxcel.protocols.responses.warmup import SilentEncoder, warming, with_turn

ID_PREFIX = "resp_"
SEALED = "reasoning.encrypted_content"
"""The one word of `include` that adds something here."""


def new_id() -> str:
    return f"{ID_PREFIX}{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRead:
    request: GenerationRequest
    stream: bool
    asked: Asked
    echoes: Mapping[str, Any]
    input_items: tuple[Item, ...]
    """Those of this call, as they are kept."""
    ignored_items: tuple[str, ...] = ()
    """The kinds of those among them that were left out of the prompt."""
    seals: bool = False
    sums_up: bool = False
    on_done: OnDone | None = None
    new_hex: NewHex = secrets.token_hex
    clock: Clock = time.time
    ping_s: float | None = None
    is_counted: bool = True
    is_warmup: bool = False

    @property
    def requests(self) -> Sequence[GenerationRequest]:
        return (self.request,)

    @property
    def store(self) -> bool:
        return self.asked.store

    @property
    def previous_id(self) -> str | None:
        return self.asked.previous_id

    @property
    def conversation(self) -> str | None:
        return self.asked.conversation

    @property
    def ignored_tools(self) -> tuple[str, ...]:
        return (*self.asked.tools.ignored, *self.ignored_items)

    def encoder(self, head: Head) -> StreamEncoder:
        encoder = ResponsesEncoder(self._state(head))
        return SilentEncoder(encoder) if self.is_warmup else encoder

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]:
        return whole(self._state(head), answer)

    def _state(self, head: Head) -> ResponseState:
        return ResponseState(
            head,
            echoes=self.echoes,
            max_calls=self.asked.max_tool_calls,
            seals=self.seals,
            sums_up=self.sums_up,
            new_hex=self.new_hex,
            clock=self.clock,
            on_done=self.on_done,
        )


def read_first(body: Mapping[str, Any], rules: ReadRules) -> Asked:
    """What says which history a request goes on from. Raises what is to be told before one that
    cannot be found: BadRequest or ModelNotFound."""
    return read_asked(Reader(body), rules)


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    lane: Lane = Lane.NORMAL,
    history: Sequence[Item] = (),
    find: Find = unknown,
    is_warmup: bool = False,
    draw: Draw = draw_seed,
    new_hex: NewHex = secrets.token_hex,
    clock: Clock = time.time,
) -> ResponsesRead:
    """Raises BadRequest, ModelNotFound or NotSupported, in the order of the contract
    (http-responses, 2). Unknown root keys are accepted.

    `history`: the items of the responses before, as they were kept, oldest first. `find` has the
    items of other responses, for those that the input only names. `is_warmup`: the prompt is read
    ahead, be it without input, and nothing is said.
    """
    fields = Reader(body)
    asked = read_asked(fields, rules)
    before = without_thoughts(history)
    reading = Reading(new_hex=new_hex, find=finder(before, find), is_strict=rules.strict_tools)
    items = read_items(fields, reading)
    refuse_media(reading.media)
    messages = with_instructions(fields.string("instructions"), turns([*before, *items]))
    if is_warmup:
        messages = with_turn(messages)
    elif not has_input(messages):
        rule = "wants at least one item with text, a function call or reasoning"
        raise fields.refuse("input", rule)
    request = GenerationRequest(
        id=request_id,
        prompt=ChatPrompt(messages=tuple(messages), kwargs=read_template_kwargs(fields)),
        settings=settings,
        sampling=read_sampling(fields, settings.sampling, rules.fixed, draw),
        max_tokens=min(given(asked.max_output_tokens, settings.sampling.max_tokens), INT32_MAX),
        stop=read_stop(fields, rules.fixed.stop),
        dry_breakers=read_breaker_texts(fields, settings.sampling),
        lane=lane,
        ignore_eos=given(fields.boolean("ignore_eos"), rules.fixed.ignore_eos),
        loop=read_loop(fields),
        cache=read_cache_use(fields),
        received_s=received_s,
    )
    output, text = read_text(fields)
    choice = read_choice(fields, asked.tools.offered, output)
    prompt = replace(request.chat, tools=choice.offered, tool_choice=choice.choice)
    budget = read_thinking_budget(fields, request.max_tokens)
    request = replace(request, prompt=prompt, output=output, thinking_budget=budget)
    return ResponsesRead(
        request=warming(request) if is_warmup else request,
        stream=_streams(fields),
        asked=asked,
        echoes=read_echoes(fields, request, asked, choice, text),
        input_items=items,
        ignored_items=tuple(dict.fromkeys(reading.ignored)),
        sums_up=sums_up(fields),
        seals=SEALED in (fields.strings("include") or ()),
        new_hex=new_hex,
        clock=clock,
        is_warmup=is_warmup,
    )


def _streams(fields: Reader) -> bool:
    """Its options are read for their types alone."""
    options = fields.nested("stream_options")
    if options is not None:
        options.boolean("include_obfuscation")
    return fields.boolean("stream") is True
