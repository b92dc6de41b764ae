"""The penalties on what was said already: repetition, frequency and presence, and DRY.

Only types are checked, as the contract says; a value that would make logits overflow acts as the
nearest one that does not.
"""

from mlxcel.core.sampling import Dry
from mlxcel.core.settings import SamplingDefaults
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.numbers import INT32_MAX, clamped, given

WINDOW = 4096
"""Tokens looked back at most: the engine keeps and compares that many for every row."""
REPETITION = (1e-3, 1e3)
"""Logits are divided or multiplied by it."""
ADDITIVE = 1e3
"""A frequency or presence penalty either way."""
DRY_MULTIPLIER = 1e3
DRY_BASE = (1.0, 1e2)
"""Below 1 the penalty would fall with the length of the repetition."""
DRY_BREAKERS = 4096


def read_repetition(fields: Reader, default: float) -> float:
    """0 and less mean off: mlx_lm.server spells that 0.0, everybody else 1.0."""
    value = given(fields.number("repetition_penalty", "repeat_penalty"), default)
    return 1.0 if value <= 0 else clamped(value, *REPETITION)


def read_additive(fields: Reader, name: str, default: float) -> float:
    return clamped(given(fields.number(name), default), -ADDITIVE, ADDITIVE)


def read_window(fields: Reader, default: int, *names: str) -> int:
    return min(given(fields.integer(*names, minimum=0), default), WINDOW)


def read_dry(fields: Reader, defaults: SamplingDefaults) -> Dry | None:
    """None: off. Every field is read all the same, so that a wrong one is told."""
    multiplier = given(fields.number("dry_multiplier"), defaults.dry_multiplier)
    allowed = given(fields.integer("dry_allowed_length", minimum=0), defaults.dry_allowed_length)
    base = given(fields.number("dry_base"), defaults.dry_base)
    window = read_window(fields, defaults.dry_penalty_last_n, "dry_penalty_last_n")
    breakers = _breaker_ids(fields)
    if multiplier <= 0 or window == 0:
        return None
    return Dry(
        multiplier=min(multiplier, DRY_MULTIPLIER),
        base=clamped(base, *DRY_BASE),
        allowed_length=min(allowed, INT32_MAX),
        window=window,
        breakers=breakers or (),
    )


def read_breaker_texts(fields: Reader, defaults: SamplingDefaults) -> tuple[str, ...]:
    """The texts of the settings, unless the request sent token ids of its own, even none."""
    return defaults.dry_sequence_breakers if _breaker_ids(fields) is None else ()


def _breaker_ids(fields: Reader) -> tuple[int, ...] | None:
    name = "dry_sequence_breakers"
    sent = fields.items(name)
    if sent is None:
        return None
    if len(sent) > DRY_BREAKERS:
        raise fields.refuse(name, f"wants at most {DRY_BREAKERS} token ids, got {len(sent)}")
    for entry in sent:
        if type(entry) is not int or not 0 <= entry <= INT32_MAX:
            raise fields.refuse(
                name, f"wants token ids, integers of at least 0, got {shown(entry)}"
            )
    return tuple(sent)
