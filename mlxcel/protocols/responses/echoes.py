"""What a response repeats of its request, every key of it, with what counts where none was sent."""

from collections.abc import Mapping
from typing import Any

from mlxcel.core.request import GenerationRequest
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.extras import check_size
from mlxcel.protocols.openai.numbers import given
from mlxcel.protocols.openai.tools import CHARS, DEPTH
from mlxcel.protocols.responses.asked import Asked
from mlxcel.protocols.responses.tools import Choice

TOP_LOGPROBS = 20
SUMMARIES = ("auto", "concise", "detailed")


def read_echoes(
    fields: Reader,
    request: GenerationRequest,
    asked: Asked,
    choice: Choice,
    text: Mapping[str, Any],
) -> dict[str, Any]:
    """Raises BadField for what is read for the echo alone."""
    sampling = request.sampling
    top_logprobs = fields.integer("top_logprobs", minimum=0, maximum=TOP_LOGPROBS)
    identifier = fields.string("safety_identifier")
    return {
        "background": False,
        "conversation": asked.conversation,
        "frequency_penalty": given(fields.number("frequency_penalty"), sampling.frequency_penalty),
        "instructions": fields.string("instructions"),
        "max_output_tokens": asked.max_output_tokens,
        "max_tool_calls": asked.max_tool_calls,
        "metadata": asked.metadata,
        "parallel_tool_calls": given(fields.boolean("parallel_tool_calls"), True),
        "presence_penalty": given(fields.number("presence_penalty"), sampling.presence_penalty),
        "previous_response_id": asked.previous_id,
        "prompt_cache_key": fields.string("prompt_cache_key"),
        "reasoning": _reasoning(fields),
        "safety_identifier": identifier,
        "service_tier": given(fields.string("service_tier"), "default"),
        "store": asked.store,
        "temperature": given(fields.number("temperature"), sampling.temperature),
        "text": text,
        "tool_choice": choice.echo,
        "tools": list(asked.tools.echo),
        "top_logprobs": given(top_logprobs, 0),
        "top_p": given(fields.number("top_p"), sampling.top_p),
        "truncation": "disabled",
        "user": given(fields.string("user"), identifier),
    }


def sums_up(fields: Reader) -> bool:
    """Whether thoughts are to be told as a summary too. Raises BadField for an unknown kind."""
    asked = fields.nested("reasoning") or Reader({})
    kinds = {name: asked.string(name) for name in ("summary", "generate_summary")}
    for name, kind in kinds.items():
        if kind is not None and kind not in SUMMARIES:
            rule = f"wants one of {', '.join(SUMMARIES)}; got {shown(kind)}"
            raise asked.refuse(name, rule)
    return any(kinds.values())


def _reasoning(fields: Reader) -> dict[str, Any]:
    """As it was sent. Not handed on: how hard a model thinks is for `chat_template_kwargs` to
    say."""
    asked = fields.nested("reasoning") or Reader({})
    check_size(fields, "reasoning", asked.body, depth=DEPTH, chars=CHARS)
    asked.string("effort")
    return {"effort": None, "summary": None, **asked.body}
