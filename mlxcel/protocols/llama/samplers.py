"""The field `samplers`: the order is fixed, so that a list can only say whether adaptive-p, which
takes the place of the draw, stands at its end."""

from mlxcel.protocols.fields import Reader, shown

NAME = "samplers"
ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
LETTERS = "edskypmxt"
ADAPTIVE = "adaptive_p"
ADAPTIVE_LETTER = "a"


def names_adaptive(fields: Reader) -> bool | None:
    """None: nothing was sent. Raises BadField for any other order."""
    sent = fields.body.get(NAME)
    if sent is None:
        return None
    if sent in (LETTERS, ";".join(ORDER), list(ORDER)):
        return False
    with_adaptive = (*ORDER, ADAPTIVE)
    if sent in (LETTERS + ADAPTIVE_LETTER, ";".join(with_adaptive), list(with_adaptive)):
        return True
    rule = (
        f"the order is fixed: {LETTERS}, or {LETTERS}{ADAPTIVE_LETTER} with {ADAPTIVE}; in full "
        f"{', '.join(ORDER)}; got {shown(sent)}"
    )
    raise fields.refuse(NAME, rule)


def sampler_names(*, is_adaptive: bool) -> list[str]:
    return [*ORDER, ADAPTIVE] if is_adaptive else list(ORDER)
