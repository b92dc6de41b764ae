"""From a request to what the worker is given: template, tokens, what cannot fit.

Pure and slow (30,000 tokens take a tenth of a second): the service runs it on a thread.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from msgspec.structs import replace

from mlxcel.core.request import GenerationRequest, TextPrompt
from mlxcel.core.sampling import SamplingParams
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.reecho import ReasoningEcho, Trail
from mlxcel.generation.token_ids import with_token_ids
from mlxcel.generation.watch import loop_guard, thinking_budget, watch_over
from mlxcel.generation.wording import check_ids, word
from mlxcel.link.messages import Submit, pack_tokens
from mlxcel.text.language.index import language_bias


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
    worded = word(request, model, window=window, echo=echo)
    request, prompt, ids = worded.request, worded.prompt, worded.ids
    if isinstance(request.prompt, TextPrompt):
        check_ids(ids, vocab_size, request.prompt.param)
    watch = watch_over(request, model, prompt, worded.kwargs)
    submit = Submit(
        id=request.id,
        tokens=pack_tokens(ids),
        sampling=sampling,
        max_tokens=request.max_tokens,
        eos_ids=model.text.eos_ids,
        choices=request.choices,
        lane=request.lane,
        top_logprobs=request.top_logprobs,
        scores_prompt=request.scores_prompt,
        is_post_sampling=request.is_post_sampling,
        tells_progress=request.tells_progress,
        ignore_eos=request.ignore_eos,
        loop=loop_guard(request, family),
        thinking=watch.thinking,
        constraint=watch.constraint,
        lora=request.lora,
        cache=worded.tag,
        keep=request.keep,
        discard=request.discard,
    )
    return Prepared(
        submit=submit,
        prompt_tokens=len(ids),
        continues=worded.continues,
        echoed=worded.echoed,
        is_open=watch.is_open,
        ignores_budget=model.marks is None and thinking_budget(request) >= 0,
        request=request,
        trail=worded.trail,
    )


def _sampling(
    request: GenerationRequest, model: ChatModel, vocab_size: int, operator_ids: Collection[int]
) -> SamplingParams:
    text = model.text
    sampling = with_token_ids(
        request.sampling,
        text=text,
        breakers=request.dry_breakers,
        biased=request.bias_texts,
        vocab_size=vocab_size,
        spared=operator_ids,
    )
    # A stand-in for an image is never said: nothing could be shown in its place.
    never = (*text.placeholder_ids, *(text.eos_ids if request.ignore_eos else ()))
    if banned := tuple((token, -inf) for token in never if token < vocab_size):
        sampling = replace(sampling, bias=(*sampling.bias, *banned))
    wide = language_bias(text, request.settings.language, model.cache_dir, vocab_size=vocab_size)
    return replace(sampling, wide_bias=wide) if wide else sampling
