"""From a request to what the worker is given: template, tokens, what cannot fit.

Pure and slow (30,000 tokens take a tenth of a second): the service runs it on a thread.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from msgspec.structs import replace

from mlxcel.core.cache import CacheTag
from mlxcel.core.errors import BadRequest, ContextLengthExceeded
from mlxcel.core.request import GenerationRequest
from mlxcel.core.sampling import SamplingParams
from mlxcel.generation import tags
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.history import with_echo, with_pinned_stamp
from mlxcel.generation.reecho import ReasoningEcho, Trail
from mlxcel.generation.render import render, template_kwargs
from mlxcel.generation.token_ids import with_token_ids
from mlxcel.generation.watch import loop_guard, thinking_budget, watch_over
from mlxcel.link.messages import Submit, pack_tokens
from mlxcel.text.language.index import language_bias
from mlxcel.text.prefill import Places, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    submit: Submit
    prompt_tokens: int
    continues: bool = False
    """The answer goes on in a text the client began."""
    echoed: str = ""
    """That text, when the client wants it told again."""
    is_open: bool = False
    """The answer begins inside a think block."""
    ignores_budget: bool = False
    """There is a thinking budget, but no way to keep it with this model."""
    request: GenerationRequest
    """As it was rendered: with thoughts that were put back."""
    trail: Trail | None = None
    """What the thoughts of the answer are kept under; None: they are not."""


def prepare(
    request: GenerationRequest,
    *,
    model: ChatModel,
    window: int,
    vocab_size: int,
    family: str,
    operator_ids: Collection[int] = (),
    echo: ReasoningEcho | None = None,
) -> Prepared:
    """`window` is the tokens a slot holds, prompt and answer; 0: unbounded. `vocab_size` is the
    number of the model's logits; `operator_ids` are the tokens the server itself biases; `echo`
    holds the thoughts of earlier answers.

    Raises BadRequest (TemplateRefused and BadField are some) and ContextLengthExceeded.
    """
    sampling = _sampling(request, model, vocab_size, operator_ids)
    kwargs = template_kwargs(request, model)
    if model.options.pins_stamp:
        request = with_pinned_stamp(request)
    request, trail = with_echo(request, model, kwargs, echo)
    is_cached = tags.is_cached(request, model)
    places = Places(history=is_cached, system=is_cached and model.options.marks_system)
    prompt = render(request, model, kwargs, places)
    ids, tag = _encoded(prompt, request, model, kwargs, window)
    watch = watch_over(request, model, prompt, kwargs)
    submit = Submit(
        id=request.id,
        tokens=pack_tokens(ids),
        sampling=sampling,
        max_tokens=request.max_tokens,
        eos_ids=model.text.eos_ids,
        choices=request.choices,
        lane=request.lane,
        top_logprobs=request.top_logprobs,
        ignore_eos=request.ignore_eos,
        loop=loop_guard(request, family),
        thinking=watch.thinking,
        constraint=watch.constraint,
        lora=request.lora,
        cache=tag,
    )
    return Prepared(
        submit=submit,
        prompt_tokens=len(ids),
        continues=bool(prompt.begun),
        echoed=prompt.echoed if request.prompt.echo else "",
        is_open=watch.is_open,
        ignores_budget=model.marks is None and thinking_budget(request) >= 0,
        request=request,
        trail=None if prompt.begun else trail,
    )


def _encoded(
    prompt: Prompt,
    request: GenerationRequest,
    model: ChatModel,
    kwargs: Mapping[str, Any],
    window: int,
) -> tuple[list[int], CacheTag | None]:
    text = prompt.text
    # Encoding megabytes takes half a minute. No token is empty, so that what has no more
    # characters than the window has tokens needs no closer look.
    if 0 < window < len(text):
        least = model.text.least_tokens(text)
        if least > window:
            raise ContextLengthExceeded(least, window, is_least=True)
    ids, tag = tags.encoded(model, prompt, request, kwargs)
    if not ids:
        raise BadRequest("the prompt is empty; send at least one message", param="messages")
    if 0 < window <= len(ids):
        raise ContextLengthExceeded(len(ids), window)
    return ids, tag


def _sampling(
    request: GenerationRequest, model: ChatModel, vocab_size: int, operator_ids: Collection[int]
) -> SamplingParams:
    text = model.text
    sampling = with_token_ids(
        request.sampling,
        text=text,
        breakers=request.dry_breakers,
        vocab_size=vocab_size,
        spared=operator_ids,
    )
    # A stand-in for an image is never said: nothing could be shown in its place.
    never = (*text.placeholder_ids, *(text.eos_ids if request.ignore_eos else ()))
    if banned := tuple((token, -inf) for token in never if token < vocab_size):
        sampling = replace(sampling, bias=(*sampling.bias, *banned))
    wide = language_bias(text, request.settings.language, model.cache_dir, vocab_size=vocab_size)
    return replace(sampling, wide_bias=wide) if wide else sampling
