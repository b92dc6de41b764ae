"""Sampling fields of a native completion.

What the contract gives bounds is refused outside of them; any other value beyond its meaningful
range acts as the nearest one inside it, or as off.
"""

import math

from mlxcel.core.sampling import AdaptiveP, Dry, DynamicTemperature, Mirostat, SamplingParams
from mlxcel.core.settings import FixedDefaults, SamplingDefaults
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.llama.bias import Ids
from mlxcel.protocols.llama.samplers import names_adaptive
from mlxcel.protocols.llama.types import real, whole
from mlxcel.protocols.openai.numbers import INT32_MAX, clamped, given
from mlxcel.protocols.openai.penalties import (
    DRY_BASE,
    DRY_MULTIPLIER,
    REPETITION,
    WINDOW,
    read_additive,
)
from mlxcel.protocols.openai.sampling import (
    GREEDY_BELOW,
    HOTTEST,
    RANDOM_SEED,
    SEED_SPAN,
    WIDEST_SIGMA,
    Draw,
    draw_seed,
)

MOST_SURPRISE = 1e3
"""Bits a token: no vocabulary has so many."""
MOST_DECAY = 0.99
BREAKERS = 64
BREAKER_CHARS = 40


def read_sampling(
    fields: Reader,
    defaults: SamplingDefaults,
    fixed: FixedDefaults,
    bias: Ids,
    draw: Draw = draw_seed,
) -> SamplingParams:
    return SamplingParams(
        temperature=_temperature(given(fields.number("temperature"), defaults.temperature)),
        top_k=clamped_int(given(fields.integer("top_k"), defaults.top_k)),
        top_p=_share(fields, "top_p", defaults.top_p),
        min_p=_share(fields, "min_p", defaults.min_p),
        typical_p=_typical(given(fields.number("typical_p"), fixed.typical_p)),
        top_n_sigma=_sigma(given(fields.number("top_n_sigma"), fixed.top_n_sigma)),
        xtc_probability=_share(fields, "xtc_probability", fixed.xtc_probability),
        xtc_threshold=_share(fields, "xtc_threshold", fixed.xtc_threshold),
        repetition_penalty=_repetition(fields, defaults.repetition_penalty),
        frequency_penalty=read_additive(fields, "frequency_penalty", defaults.frequency_penalty),
        presence_penalty=read_additive(fields, "presence_penalty", defaults.presence_penalty),
        penalty_window=_window(fields, "repeat_last_n", defaults.repetition_context_size),
        dry=_dry(fields, defaults),
        mirostat=_mirostat(fields, fixed),
        dynamic_temperature=_dynamic_temperature(fields, fixed),
        adaptive=_adaptive(fields, fixed),
        min_keep=given(whole(fields, "min_keep", low=0, high=INT32_MAX), 0),
        bias=bias,
        seed=_seed(fields, defaults, draw),
    )


def is_seed_random(fields: Reader, defaults: SamplingDefaults) -> bool:
    """Whether the server draws one."""
    sent = given(fields.integer("seed"), defaults.seed)
    return sent is None or sent % SEED_SPAN == RANDOM_SEED


def read_breakers(fields: Reader, defaults: SamplingDefaults) -> tuple[str, ...]:
    """Texts no repetition reaches across."""
    name = "dry_sequence_breakers"
    sent = fields.items(name)
    if sent is None:
        return defaults.dry_sequence_breakers
    if not 0 < len(sent) <= BREAKERS:
        raise fields.refuse(name, f"wants 1 to {BREAKERS} strings, got {len(sent)}")
    for entry in sent:
        if not isinstance(entry, str) or not 0 < len(entry) <= BREAKER_CHARS:
            rule = f"wants strings of 1 to {BREAKER_CHARS} characters, got {shown(entry)}"
            raise fields.refuse(name, rule)
    return tuple(sent)


def clamped_int(value: int) -> int:
    """0, which is off, for what is below it."""
    return min(max(value, 0), INT32_MAX)


def _temperature(value: float) -> float:
    return 0.0 if value < GREEDY_BELOW else min(value, HOTTEST)


def _share(fields: Reader, name: str, default: float) -> float:
    return clamped(given(fields.number(name), default), 0.0, 1.0)


def _typical(value: float) -> float:
    return value if 0.0 < value < 1.0 else 1.0


def _sigma(value: float) -> float:
    return min(value, WIDEST_SIGMA) if 0 < value < math.inf else 0.0


def _repetition(fields: Reader, default: float) -> float:
    value = given(fields.number("repeat_penalty"), default)
    return 1.0 if value <= 0 else clamped(value, *REPETITION)


def _window(fields: Reader, name: str, default: int) -> int:
    return min(given(whole(fields, name, low=0, high=INT32_MAX), default), WINDOW)


def _dry(fields: Reader, defaults: SamplingDefaults) -> Dry | None:
    """None: off. Every field is read all the same, so that a wrong one is told."""
    allowed = whole(fields, "dry_allowed_length", low=0, high=INT32_MAX)
    multiplier = given(fields.number("dry_multiplier"), defaults.dry_multiplier)
    base = given(fields.number("dry_base"), defaults.dry_base)
    window = _window(fields, "dry_penalty_last_n", defaults.dry_penalty_last_n)
    if multiplier <= 0 or window == 0:
        return None
    return Dry(
        multiplier=min(multiplier, DRY_MULTIPLIER),
        base=clamped(base, *DRY_BASE),
        allowed_length=given(allowed, defaults.dry_allowed_length),
        window=window,
    )


def _mirostat(fields: Reader, fixed: FixedDefaults) -> Mirostat | None:
    version = given(fields.integer("mirostat"), fixed.mirostat_version)
    if version not in (0, 1, 2):
        raise fields.refuse("mirostat", f"wants 0 (off), 1 or 2, got {shown(version)}")
    target = given(fields.number("mirostat_tau"), fixed.mirostat_target)
    rate = given(fields.number("mirostat_eta"), fixed.mirostat_rate)
    if not version:
        return None
    return Mirostat(
        version=version,
        rate=clamped(rate, 0.0, MOST_SURPRISE),
        target=clamped(target, 0.0, MOST_SURPRISE),
    )


def _dynamic_temperature(fields: Reader, fixed: FixedDefaults) -> DynamicTemperature | None:
    span = min(given(fields.number("dynatemp_range"), fixed.temperature_span), HOTTEST)
    exponent = given(fields.number("dynatemp_exponent"), fixed.temperature_exponent)
    exponent = clamped(exponent, 0.0, HOTTEST)
    return DynamicTemperature(span=span, exponent=exponent) if span > 0 else None


def _adaptive(fields: Reader, fixed: FixedDefaults) -> AdaptiveP | None:
    """Only where it is named among the samplers, by the request or else by the server."""
    is_named = given(names_adaptive(fields), fixed.names_adaptive)
    decay = real(fields, "adaptive_decay", low=0.0, high=MOST_DECAY)
    decay = given(decay, fixed.adaptive_decay)
    target = min(given(fields.number("adaptive_target"), fixed.adaptive_target), 1.0)
    return AdaptiveP(target=target, decay=decay) if is_named and target >= 0 else None


def _seed(fields: Reader, defaults: SamplingDefaults, draw: Draw) -> int:
    if is_seed_random(fields, defaults):
        return draw()
    return given(fields.integer("seed"), given(defaults.seed, 0)) % SEED_SPAN
