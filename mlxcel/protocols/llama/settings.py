"""`generation_settings`: the values a request is answered with, by the names they are asked for
with. The same shape stands in the list of slots.

What is off has the value that means off; what it would be steered by is the server's.
"""

import math
from typing import Any

from mlxcel.core.output import OutputKind, Trigger
from mlxcel.core.request import GenerationRequest
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.settings import FixedDefaults
from mlxcel.protocols.llama.grammar import KINDS
from mlxcel.protocols.llama.samplers import sampler_names
from mlxcel.protocols.openai.numbers import INT32_MAX, given
from mlxcel.protocols.openai.sampling import RANDOM_SEED

UNBOUNDED = -1


def settings_body(
    request: GenerationRequest,
    fixed: FixedDefaults,
    *,
    stream: bool = False,
    n_predict: int | None = None,
    is_seed_random: bool = False,
    timings_per_token: bool = False,
) -> dict[str, Any]:
    """`n_predict` as it was asked for, where that is known."""
    sampling = request.sampling
    most = given(n_predict, UNBOUNDED if request.max_tokens >= INT32_MAX else request.max_tokens)
    return {
        "seed": RANDOM_SEED if is_seed_random else sampling.seed,
        **_draw_body(sampling, fixed),
        **_dry_body(request),
        **_steered_draw_body(sampling, fixed),
        "stop": list(request.stop),
        "max_tokens": most,
        "n_predict": most,
        "n_keep": given(request.keep, 0),
        "n_discard": request.discard,
        "ignore_eos": request.ignore_eos,
        "stream": stream,
        "logit_bias": _bias_body(request),
        "n_probs": given(request.top_logprobs, 0),
        "min_keep": sampling.min_keep,
        "post_sampling_probs": request.is_post_sampling,
        **_grammar_body(request),
        "preserved_tokens": list(request.preserved),
        "samplers": sampler_names(is_adaptive=sampling.adaptive is not None),
        "timings_per_token": timings_per_token,
        **_lora_body(request),
    }


def _draw_body(sampling: SamplingParams, fixed: FixedDefaults) -> dict[str, Any]:
    dynamic = sampling.dynamic_temperature
    return {
        "temperature": sampling.temperature,
        "dynatemp_range": 0.0 if dynamic is None else dynamic.span,
        "dynatemp_exponent": fixed.temperature_exponent if dynamic is None else dynamic.exponent,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "top_n_sigma": sampling.top_n_sigma,
        "xtc_probability": sampling.xtc_probability,
        "xtc_threshold": sampling.xtc_threshold,
        "typical_p": sampling.typical_p,
        "repeat_last_n": sampling.penalty_window,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
    }


def _dry_body(request: GenerationRequest) -> dict[str, Any]:
    """Breakers sent as token ids, as chat requests have them, are shown as such."""
    dry, defaults = request.sampling.dry, request.settings.sampling
    return {
        "dry_multiplier": 0.0 if dry is None else dry.multiplier,
        "dry_base": defaults.dry_base if dry is None else dry.base,
        "dry_allowed_length": defaults.dry_allowed_length if dry is None else dry.allowed_length,
        "dry_penalty_last_n": defaults.dry_penalty_last_n if dry is None else dry.window,
        "dry_sequence_breakers": list(request.dry_breakers)
        or ([] if dry is None else list(dry.breakers)),
    }


def _steered_draw_body(sampling: SamplingParams, fixed: FixedDefaults) -> dict[str, Any]:
    mirostat, adaptive = sampling.mirostat, sampling.adaptive
    return {
        "mirostat": 0 if mirostat is None else mirostat.version,
        "mirostat_tau": fixed.mirostat_target if mirostat is None else mirostat.target,
        "mirostat_eta": fixed.mirostat_rate if mirostat is None else mirostat.rate,
        "adaptive_target": -1.0 if adaptive is None else adaptive.target,
        "adaptive_decay": fixed.adaptive_decay if adaptive is None else adaptive.decay,
    }


def _bias_body(request: GenerationRequest) -> list[list[Any]]:
    """In the form in which it may be sent: `false` bans."""
    pairs = [*request.sampling.bias, *request.bias_texts]
    return [[token, False if value == -math.inf else value] for token, value in pairs]


def _grammar_body(request: GenerationRequest) -> dict[str, Any]:
    output = request.output
    triggers = () if output is None else output.triggers
    is_grammar = output is not None and output.kind is OutputKind.GBNF
    return {
        "grammar": output.source if output is not None and is_grammar else "",
        "grammar_lazy": bool(triggers),
        "grammar_triggers": [_trigger_body(trigger) for trigger in triggers],
    }


def _trigger_body(trigger: Trigger) -> dict[str, Any]:
    body = {"type": KINDS.index(trigger.kind), "value": trigger.value}
    return body if trigger.token is None else body | {"token": trigger.token}


def _lora_body(request: GenerationRequest) -> dict[str, Any]:
    """Nothing where the request brings no scales of its own."""
    if request.lora is None:
        return {}
    return {"lora": [{"id": adapter, "scale": scale} for adapter, scale in request.lora]}
