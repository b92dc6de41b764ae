"""POST /v1/completions: text is continued as it stands. No template, no tools, no roles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.request import GenerationRequest, Lane, TextPrompt
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import Head, ReadRules
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.cache_use import read_cache_use
from mlxcel.protocols.openai.envelope import check_model, read_choices, read_stream
from mlxcel.protocols.openai.numbers import given
from mlxcel.protocols.openai.output import read_output
from mlxcel.protocols.openai.penalties import read_breaker_texts
from mlxcel.protocols.openai.prompts import read_prompts
from mlxcel.protocols.openai.sampling import (
    Draw,
    draw_seed,
    read_max_tokens,
    read_sampling,
    read_seed,
    read_stop,
)
from mlxcel.protocols.openai.steering import read_loop, read_thinking_budget
from mlxcel.protocols.openai.text_answer import completion_body
from mlxcel.protocols.openai.text_chunks import CompletionEncoder
from mlxcel.protocols.openai.types import COMPLETION, check_types

ID_PREFIX = "cmpl-"
LOGPROBS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRead:
    """One request for each prompt; the choices of all of them are counted through."""

    requests: Sequence[GenerationRequest]
    stream: bool
    include_usage: bool
    ping_s: float | None = None

    @property
    def request(self) -> GenerationRequest:
        """That of the first prompt."""
        return self.requests[0]

    @property
    def is_counted(self) -> bool:
        return not self.stream

    def encoder(self, head: Head) -> CompletionEncoder:
        choices = sum(request.choices for request in self.requests)
        return CompletionEncoder(head, choices=choices, include_usage=self.include_usage)

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]:
        return completion_body(head, answer, has_logprobs=self.request.top_logprobs is not None)


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    lane: Lane = Lane.NORMAL,
    draw: Draw = draw_seed,
) -> CompletionRead:
    """Raises BadRequest or ModelNotFound. Unknown root keys are accepted.

    Fields are read in the order in which the contract checks them (http-openai, 10.3).
    """
    fields = Reader(body)
    check_model(fields, rules)
    check_types(fields, COMPLETION)
    stream, include_usage = read_stream(fields)
    prompts = read_prompts(fields, echo=fields.boolean("echo") is True)
    top_logprobs = fields.integer("logprobs", minimum=0, maximum=LOGPROBS)
    sampling = read_sampling(fields, settings.sampling, rules.fixed, draw)
    max_tokens = read_max_tokens(fields, settings.sampling.max_tokens)
    first = GenerationRequest(
        id=request_id,
        prompt=prompts[0],
        settings=settings,
        sampling=sampling,
        max_tokens=max_tokens,
        stop=read_stop(fields, rules.fixed.stop),
        dry_breakers=read_breaker_texts(fields, settings.sampling),
        choices=read_choices(fields),
        lane=lane,
        top_logprobs=top_logprobs,
        # What is told again is told with its scores, where there are any.
        scores_prompt=prompts[0].echo and top_logprobs is not None,
        ignore_eos=given(fields.boolean("ignore_eos"), rules.fixed.ignore_eos),
        loop=read_loop(fields),
        thinking_budget=read_thinking_budget(fields, max_tokens),
        output=read_output(fields),
        cache=read_cache_use(fields),
        received_s=received_s,
    )

    def another(place: int, prompt: TextPrompt) -> GenerationRequest:
        # The same prompt twice has two answers, unless a seed was sent.
        seed = read_seed(fields, settings.sampling, draw)
        name = f"{request_id}-{place}"
        return replace(first, id=name, prompt=prompt, sampling=sampling.seeded(seed))

    more = (another(place, prompt) for place, prompt in enumerate(prompts[1:], 1))
    return CompletionRead(requests=(first, *more), stream=stream, include_usage=include_usage)
