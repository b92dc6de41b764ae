"""From a request to what the worker is given: template, tokens, what cannot fit.

Pure and slow (30,000 tokens take a tenth of a second): the service runs it on a thread.
"""

from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadRequest, ContextLengthExceeded
from mlxcel.core.request import GenerationRequest
from mlxcel.generation.token_ids import with_token_ids
from mlxcel.link.messages import Submit, pack_tokens
from mlxcel.text.prefill import render_prompt
from mlxcel.text.template import ChatTemplate
from mlxcel.text.tokenizer import TextModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    submit: Submit
    prompt_tokens: int
    continues: bool
    """The answer goes on in a text the client began."""


def prepare(
    request: GenerationRequest,
    *,
    text: TextModel,
    template: ChatTemplate | None,
    window: int,
    vocab_size: int,
) -> Prepared:
    """`window` is the tokens a slot holds, prompt and answer; 0: unbounded. `vocab_size` is the
    number of the model's logits.

    Raises BadRequest (TemplateRefused and BadField are some) and ContextLengthExceeded.
    """
    sampling = with_token_ids(
        request.sampling, text=text, breakers=request.dry_breakers, vocab_size=vocab_size
    )
    prompt, continues = _render(request, template)
    ids = text.encode(prompt)
    if not ids:
        raise BadRequest("the prompt is empty; send at least one message", param="messages")
    if 0 < window <= len(ids):
        raise ContextLengthExceeded(len(ids), window)
    submit = Submit(
        id=request.id,
        tokens=pack_tokens(ids),
        sampling=sampling,
        max_tokens=request.max_tokens,
        eos_ids=text.eos_ids,
    )
    return Prepared(submit=submit, prompt_tokens=len(ids), continues=continues)


def _render(request: GenerationRequest, template: ChatTemplate | None) -> tuple[str, bool]:
    if template is None:
        raise BadRequest(
            "this model has no chat template; set generation.chat_template.file or .text",
            param="messages",
        )
    kwargs: dict[str, Any] = {**request.settings.template_kwargs, **request.prompt.kwargs}
    return render_prompt(template, request.prompt.messages, kwargs)
