"""What type each typed field of a Responses body has. Whatever is not named here is read, and
checked, by its own reader, or ignored."""

from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.types import Types

RESPONSES: Types = (
    (Reader.string, ("instructions", "previous_response_id", "truncation", "service_tier")),
    (Reader.string, ("user", "safety_identifier", "prompt_cache_key")),
    (Reader.boolean, ("stream", "store", "background", "parallel_tool_calls")),
    (Reader.boolean, ("ignore_eos", "cache_prompt")),
    (Reader.integer, ("max_output_tokens", "max_tokens", "max_tool_calls", "top_logprobs")),
    (Reader.integer, ("top_k", "seed", "repetition_context_size", "repeat_last_n")),
    (Reader.integer, ("dry_allowed_length", "dry_penalty_last_n")),
    (Reader.integer, ("min_pattern_size", "max_pattern_size", "min_count")),
    (Reader.integer, ("thinking_budget_tokens", "reasoning_budget_tokens")),
    (Reader.integer, ("thinking_token_budget", "thinking_budget")),
    (Reader.number, ("temperature", "top_p", "min_p", "typical_p", "top_n_sigma")),
    (Reader.number, ("xtc_probability", "xtc_threshold")),
    (Reader.number, ("repetition_penalty", "repeat_penalty")),
    (Reader.number, ("frequency_penalty", "presence_penalty")),
    (Reader.number, ("dry_multiplier", "dry_base")),
    (Reader.items, ("tools", "dry_sequence_breakers")),
    (Reader.strings, ("stop", "include")),
    (Reader.mapping, ("text", "reasoning", "metadata", "stream_options", "logit_bias")),
    (Reader.mapping, ("chat_template_kwargs", "extra_body")),
)
