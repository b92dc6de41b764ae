"""Sampling fields of a request, shared by the OpenAI generation routes.

Of most numbers only types are checked, as the contract says: a value beyond its meaningful range
acts as the nearest one inside it. Those of typical, top-n-sigma and XTC are refused out of range.
Mirostat, dynamic temperature and adaptive-p are the server's alone on these routes.
"""

import secrets
from collections.abc import Callable

from mlxcel.core.sampling import SamplingParams
from mlxcel.core.settings import FixedDefaults, SamplingDefaults
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.logit_bias import read_bias
from mlxcel.protocols.openai.numbers import INT32_MAX, clamped, given
from mlxcel.protocols.openai.penalties import (
    read_additive,
    read_dry,
    read_repetition,
    read_window,
)

SEED_SPAN = 2**32
RANDOM_SEED = SEED_SPAN - 1
"""-1 folded: the value that asks for a seed of the server's choice."""
GREEDY_BELOW = 1e-5
"""Dividing by a smaller temperature overflows float32."""
HOTTEST = 1e5
WIDEST_SIGMA = 1e6
"""No logit is so many standard deviations below the largest: all are kept."""
STOPS = 64
STOP_CHARS = 1024
"""Stop strings are searched for in every piece of an answer, by the loop that serves everybody."""

Draw = Callable[[], int]


def draw_seed() -> int:
    return secrets.randbelow(SEED_SPAN)


def read_sampling(
    fields: Reader, defaults: SamplingDefaults, fixed: FixedDefaults, draw: Draw = draw_seed
) -> SamplingParams:
    # What has a range of its own is read first, in the order of the contract (http-openai, 3).
    threshold = _between(fields, "xtc_threshold", 0.5, fixed.xtc_threshold)
    probability = _between(fields, "xtc_probability", 1.0, fixed.xtc_probability)
    sigma, typical = _sigma(fields, fixed.top_n_sigma), _typical(fields, fixed.typical_p)
    top_k = given(fields.integer("top_k", minimum=0), defaults.top_k)
    window = read_window(
        fields, defaults.repetition_context_size, "repetition_context_size", "repeat_last_n"
    )
    return SamplingParams(
        temperature=_temperature(given(fields.number("temperature"), defaults.temperature)),
        top_p=clamped(given(fields.number("top_p"), defaults.top_p), 0.0, 1.0),
        top_k=min(top_k, INT32_MAX),
        min_p=clamped(given(fields.number("min_p"), defaults.min_p), 0.0, 1.0),
        typical_p=typical,
        top_n_sigma=sigma,
        xtc_probability=probability,
        xtc_threshold=threshold,
        repetition_penalty=read_repetition(fields, defaults.repetition_penalty),
        frequency_penalty=read_additive(fields, "frequency_penalty", defaults.frequency_penalty),
        presence_penalty=read_additive(fields, "presence_penalty", defaults.presence_penalty),
        penalty_window=window,
        dry=read_dry(fields, defaults),
        mirostat=fixed.mirostat,
        dynamic_temperature=fixed.dynamic_temperature,
        adaptive=fixed.adaptive,
        bias=read_bias(fields, fixed.bias),
        seed=read_seed(fields, defaults, draw),
    )


def read_max_tokens(fields: Reader, default: int) -> int:
    """`max_completion_tokens` wins over `max_tokens`, its older name: clients send both.

    `n_predict` is a third spelling; beside one of the others it is refused.
    """
    older = fields.integer("max_tokens", "n_predict", minimum=0)
    newer = fields.integer("max_completion_tokens", minimum=0)
    if newer is not None and fields.body.get("n_predict") is not None:
        fields.pick("max_completion_tokens", "n_predict")
    chosen = older if newer is None else newer
    return min(given(chosen, default), INT32_MAX)


def read_stop(fields: Reader, default: tuple[str, ...], name: str = "stop") -> tuple[str, ...]:
    """Empty strings are dropped: they would match everywhere. The server's own are for requests
    that have none left."""
    sent = fields.strings(name) or ()
    if len(sent) > STOPS:
        raise fields.refuse(name, f"wants at most {STOPS} strings, got {len(sent)}")
    longest = max(map(len, sent), default=0)
    if longest > STOP_CHARS:
        rule = f"wants strings of at most {STOP_CHARS} characters, got one of {longest}"
        raise fields.refuse(name, rule)
    return tuple(entry for entry in sent if entry) or default


def read_seed(fields: Reader, defaults: SamplingDefaults, draw: Draw = draw_seed) -> int:
    """Drawn anew each time where none is set."""
    sent = fields.integer("seed")
    if sent is None:
        return draw() if defaults.seed is None else defaults.seed % SEED_SPAN
    folded = sent % SEED_SPAN
    return draw() if folded == RANDOM_SEED else folded


def _temperature(value: float) -> float:
    return 0.0 if value < GREEDY_BELOW else min(value, HOTTEST)


def _typical(fields: Reader, default: float) -> float:
    value = fields.number("typical_p", maximum=1.0)
    if value is not None and value <= 0:
        raise fields.refuse("typical_p", f"wants a value above 0, got {shown(value)}")
    return given(value, default)


def _sigma(fields: Reader, default: float) -> float:
    return min(given(fields.number("top_n_sigma", minimum=0.0), default), WIDEST_SIGMA)


def _between(fields: Reader, name: str, most: float, default: float) -> float:
    return given(fields.number(name, minimum=0.0, maximum=most), default)
