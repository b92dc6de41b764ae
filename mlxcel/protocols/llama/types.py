"""Field types of a native completion, before anything else about a value is looked at; and
integers in the words of the contract, which name both bounds."""

from collections.abc import Callable

from mlxcel.protocols.fields import Reader, shown

_Read = Callable[..., object]

TYPES: tuple[tuple[_Read, tuple[str, ...]], ...] = (
    (Reader.boolean, ("stream", "timings_per_token", "return_progress", "return_tokens")),
    (Reader.boolean, ("cache_prompt", "ignore_eos", "post_sampling_probs", "grammar_lazy")),
    (Reader.boolean, ("reasoning_control",)),
    (Reader.integer, ("n_predict", "max_tokens", "max_completion_tokens", "n_cmpl", "n")),
    (Reader.integer, ("sse_ping_interval", "n_indent", "t_max_predict_ms")),
    (Reader.integer, ("n_keep", "n_discard", "top_k", "min_keep", "mirostat", "seed")),
    (Reader.integer, ("repeat_last_n", "dry_allowed_length", "dry_penalty_last_n")),
    (Reader.integer, ("n_probs", "logprobs")),
    (Reader.integer, ("thinking_budget_tokens", "reasoning_budget_tokens")),
    (Reader.integer, ("thinking_token_budget", "thinking_budget")),
    (Reader.number, ("temperature", "top_p", "min_p", "typical_p", "top_n_sigma")),
    (Reader.number, ("xtc_probability", "xtc_threshold", "repeat_penalty")),
    (Reader.number, ("presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base")),
    (Reader.number, ("mirostat_tau", "mirostat_eta", "dynatemp_range", "dynatemp_exponent")),
    (Reader.number, ("adaptive_target", "adaptive_decay")),
    (Reader.items, ("dry_sequence_breakers", "lora", "grammar_triggers", "preserved_tokens")),
    (Reader.mapping, ("json_schema",)),
    (Reader.strings, ("stop",)),
)


def check_types(fields: Reader) -> None:
    """Raises BadField for the first field that is of another type than the contract gives it."""
    for read, names in TYPES:
        for name in names:
            read(fields, name)


def whole(fields: Reader, *names: str, low: int, high: int) -> int | None:
    """An integer from `low` to `high`; None: absent."""
    value = fields.integer(*names)
    if value is not None and not low <= value <= high:
        rule = f"wants a value from {low} to {high}, got {shown(value)}"
        raise fields.refuse(fields.pick(*names)[0], rule)
    return value


def real(fields: Reader, name: str, *, low: float, high: float) -> float | None:
    """A number from `low` to `high`; None: absent."""
    value = fields.number(name)
    if value is not None and not low <= value <= high:
        raise fields.refuse(name, f"wants a value from {low:g} to {high:g}, got {shown(value)}")
    return value
