"""Field types, before anything else about a value is looked at (http-openai 3, row 2)."""

from collections.abc import Callable

from mlxcel.protocols.fields import Reader

Types = tuple[tuple[Callable[..., object], tuple[str, ...]], ...]

_SHARED: Types = (
    (Reader.boolean, ("stream", "ignore_eos", "cache_prompt", "reasoning_control")),
    (Reader.string, ("user",)),
    (Reader.integer, ("n", "top_k", "seed")),
    (Reader.integer, ("max_tokens", "max_completion_tokens", "n_predict")),
    (Reader.integer, ("repetition_context_size", "repeat_last_n")),
    (Reader.integer, ("dry_allowed_length", "dry_penalty_last_n")),
    (Reader.integer, ("min_pattern_size", "max_pattern_size", "min_count")),
    (Reader.integer, ("thinking_budget_tokens", "reasoning_budget_tokens")),
    (Reader.integer, ("thinking_token_budget", "thinking_budget")),
    (Reader.number, ("temperature", "top_p", "min_p", "typical_p", "top_n_sigma")),
    (Reader.number, ("xtc_probability", "xtc_threshold")),
    (Reader.number, ("repetition_penalty", "repeat_penalty")),
    (Reader.number, ("frequency_penalty", "presence_penalty")),
    (Reader.number, ("dry_multiplier", "dry_base")),
    (Reader.items, ("dry_sequence_breakers",)),
    (Reader.mapping, ("stream_options", "logit_bias", "response_format")),
    (Reader.strings, ("stop",)),
)
CHAT: Types = (
    *_SHARED,
    (Reader.boolean, ("logprobs", "parallel_tool_calls")),
    (Reader.string, ("prompt_cache_key", "reasoning_effort")),
    (Reader.integer, ("top_logprobs",)),
    (Reader.items, ("messages", "tools")),
    (Reader.mapping, ("chat_template_kwargs", "extra_body")),
)
COMPLETION: Types = (
    *_SHARED,
    (Reader.boolean, ("echo",)),
    (Reader.string, ("suffix",)),
    (Reader.integer, ("logprobs", "best_of")),
)
"""`reasoning_control`, `suffix`, `best_of`, `user` and `cache_prompt` change nothing there."""


def check_types(fields: Reader, types: Types) -> None:
    """Raises BadField for the first field that is of another type than the contract gives it.
    Two spellings of one field are for its reader to refuse."""
    for read, names in types:
        for name in names:
            read(fields, name)
