"""How much of a matched prefix a prompt may adopt (engine contract, cache 5). Pure."""

from dataclasses import dataclass

from mlxcel.core.cache import Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """For sessions that are conversations: all that have a name."""

    most: int
    """Sessions in memory; the least recently used ones make room."""
    entries: int
    """Of one session."""
    ttl_s: float
    """Since the session was last used, whichever of its entries was; 0: for ever. It stands in
    place of the age of single entries."""
    max_tokens: int
    """Longer entries are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRules:
    capacity_bytes: int | None
    """None: no bound."""
    max_entries: int
    ttl_s: float
    """Since the entry was last used; 0: for ever."""
    min_prefix: int
    is_apc: bool
    """False: only entries that a prompt contains whole are adopted."""
    block: int
    floor: int
    """What is adopted is a multiple of it, and of whole hash blocks; 1: to the token."""
    sessions: SessionRules | None = None


def adoptable(agreed: int, whole: int, prompt: int, rules: StoreRules) -> tuple[int, Reject | None]:
    """How much to adopt where `agreed` tokens are equal to what is there, of which `whole` are
    the longest entry that the prompt contains as a whole (0: none); why nothing, if so. The last
    token of a prompt is always read: its logits are needed."""
    usable = min(agreed if rules.is_apc else whole, prompt - 1)
    if not rules.is_apc and not whole:
        return 0, Reject.LAYOUT_CONSTRAINTS
    if usable <= 0 or usable < rules.min_prefix:
        return 0, Reject.PREFIX_TOO_SHORT
    if not rules.is_apc or rules.floor == 1:
        return usable, None
    floored = usable // rules.block * rules.block // rules.floor * rules.floor
    if floored <= 0 or floored < rules.min_prefix:
        return 0, Reject.BLOCK_BOUNDARY_FLOOR
    return floored, None
