"""What the native generation routes share: from the fields beside the prompt to a request.

Fields are checked in the order of the contract (http-native, 2.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.cache import CacheUse
from mlxcel.core.request import GenerationRequest, InfillPrompt, Lane, TextPrompt
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import Head, ReadRules
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.llama.answer import whole_body
from mlxcel.protocols.llama.bias import read_bias
from mlxcel.protocols.llama.grammar import read_output, read_preserved
from mlxcel.protocols.llama.request_lora import read_own_lora
from mlxcel.protocols.llama.sampling import is_seed_random, read_breakers, read_sampling
from mlxcel.protocols.llama.shape import Shape
from mlxcel.protocols.llama.stream import CompletionEncoder
from mlxcel.protocols.llama.types import whole
from mlxcel.protocols.openai.numbers import INT32_MAX, given
from mlxcel.protocols.openai.sampling import Draw, read_stop
from mlxcel.protocols.openai.steering import read_thinking_budget

INT64_MAX = 2**63 - 1
PROBS = 100
"""Likeliest tokens told beside each one said at most."""
LIMIT = ("n_predict", "max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRead:
    request: GenerationRequest
    stream: bool
    ping_s: float | None
    shape: Shape

    @property
    def requests(self) -> Sequence[GenerationRequest]:
        return (self.request,)

    @property
    def is_counted(self) -> bool:
        return not self.stream

    def encoder(self, head: Head) -> CompletionEncoder:
        return CompletionEncoder(head, self.shape)

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]:
        return whole_body(head, self.shape, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What is known of a request beside its body."""

    id: str
    settings: Settings
    received_s: float
    rules: ReadRules
    lane: Lane
    draw: Draw


def read_asked(
    fields: Reader, prompt: TextPrompt | InfillPrompt, arrival: Arrival
) -> CompletionRead:
    """Types were checked, and the prompt was read."""
    defaults, fixed = arrival.settings.sampling, arrival.rules.fixed
    _refuse_format(fields)
    n_predict = _n_predict(fields, defaults.max_tokens)
    _check_stream_options(fields)
    keep = given(whole(fields, "n_keep", low=-1, high=INT32_MAX), fixed.keep)
    discard = given(whole(fields, "n_discard", low=0, high=INT32_MAX), 0)
    budget = read_thinking_budget(fields, INT32_MAX if n_predict < 0 else n_predict)
    _refuse_choices(fields)
    stream = fields.boolean("stream") or False
    bias, texts = read_bias(fields, fixed.bias)
    probs = _n_probs(fields)
    request = GenerationRequest(
        id=arrival.id,
        prompt=prompt,
        settings=arrival.settings,
        sampling=read_sampling(fields, defaults, fixed, bias, arrival.draw),
        # One token comes out, whatever is asked for: the prompt is read for it.
        max_tokens=INT32_MAX if n_predict < 0 else max(n_predict, 1),
        stop=read_stop(fields, fixed.stop),
        dry_breakers=read_breakers(fields, defaults),
        bias_texts=texts,
        lane=arrival.lane,
        top_logprobs=probs if probs > 0 else None,
        is_post_sampling=fields.boolean("post_sampling_probs") or False,
        tells_ids=stream or (fields.boolean("return_tokens") or False),
        tells_progress=stream and (fields.boolean("return_progress") or False),
        ignore_eos=given(fields.boolean("ignore_eos"), fixed.ignore_eos),
        thinking_budget=budget,
        indent=given(whole(fields, "n_indent", low=0, high=INT32_MAX), 0),
        time_limit_ms=_time_limit(fields),
        keep=keep,
        discard=discard,
        preserved=read_preserved(fields),
        output=read_output(fields, fixed.output),
        lora=read_own_lora(fields, arrival.rules.merged_lora),
        cache=CacheUse(is_on=fields.boolean("cache_prompt") is not False),
        received_s=arrival.received_s,
    )
    return CompletionRead(
        request=request,
        stream=stream,
        ping_s=_ping(fields),
        shape=Shape(
            request=request,
            fixed=fixed,
            prompt=prompt.text,
            stream=stream,
            n_predict=n_predict,
            is_seed_random=is_seed_random(fields, defaults),
            has_timings=fields.boolean("timings_per_token") or False,
            paths=_response_fields(fields),
        ),
    )


def _refuse_format(fields: Reader) -> None:
    name = "response_format"
    sent = fields.body.get(name)
    if sent is None or (isinstance(sent, dict) and sent.get("type") == "text"):
        return
    rule = (
        'wants {"type": "text"} on this route; send json_schema or grammar instead, or ask '
        f"/v1/chat/completions, got {shown(sent)}"
    )
    raise fields.refuse(name, rule)


def _n_predict(fields: Reader, default: int) -> int:
    """-1: up to the context window, which the settings say as the largest number there is."""
    asked = given(whole(fields, *LIMIT, low=-1, high=INT32_MAX), default)
    return -1 if asked >= INT32_MAX else asked


def _check_stream_options(fields: Reader) -> None:
    options = fields.body.get("stream_options")
    if isinstance(options, dict):
        Reader(options, fields.name("stream_options")).boolean("include_usage")


def _refuse_choices(fields: Reader) -> None:
    name, _ = fields.pick("n_cmpl", "n")
    if given(fields.integer("n_cmpl", "n"), 1) != 1:
        rule = "wants 1: this route gives one answer; /v1/completions gives several"
        raise fields.refuse(name, f"{rule}, got {shown(fields.body[name])}")


def _n_probs(fields: Reader) -> int:
    sent = fields.integer("n_probs")
    if sent is None:
        sent = fields.integer("logprobs")
    return min(max(given(sent, 0), 0), PROBS)


def _time_limit(fields: Reader) -> int:
    return max(given(whole(fields, "t_max_predict_ms", low=-1, high=INT64_MAX), 0), 0)


def _ping(fields: Reader) -> float | None:
    name = "sse_ping_interval"
    sent = whole(fields, name, low=-1, high=INT32_MAX)
    if sent == 0:
        raise fields.refuse(name, "wants seconds, at least 1, or -1 for no pings, got 0")
    return None if sent is None else float(max(sent, 0))


def _response_fields(fields: Reader) -> tuple[str, ...]:
    sent = fields.body.get("response_fields")
    if not isinstance(sent, list) or not all(isinstance(path, str) for path in sent):
        return ()
    return tuple(sent)
