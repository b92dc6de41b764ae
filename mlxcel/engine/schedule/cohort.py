"""How many prompts are prefilled in one forward, padded to the longest of them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from mlxcel.engine.prompt import Prompt

DERIVED_FROM = 512
"""Of a chunk so many tokens count towards the derived bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortRules:
    most: int
    """Prompts; 1: never together."""
    cap: int
    """Tokens of the padded forward; 0: unbounded."""
    chunk: int
    """A longer prompt is prefilled in pieces, alone; 0: prompts are never cut."""
    window: int = 0
    """A longer prompt loses its first tokens on the way, which padding must not; 0: none does."""

    def may_join(self, head: Prompt, other: Prompt) -> bool:
        is_alike = self.is_short(other) and other.is_cold and other.lora == head.lora
        return is_alike and not other.is_scored

    def is_short(self, prompt: Prompt) -> bool:
        most = [size for size in (self.chunk, self.window) if size]
        return len(prompt.tokens) <= min(most, default=len(prompt.tokens))


def cohort_rules(*, most: int, cap: int | None, chunk: int, window: int = 0) -> CohortRules:
    """`cap` None is derived from the others."""
    derived = 2 * most * min(chunk or DERIVED_FROM, DERIVED_FROM)
    return CohortRules(most=most, cap=derived if cap is None else cap, chunk=chunk, window=window)


def cohort_of(lane: Iterable[Prompt], rules: CohortRules, *, free: int) -> list[Prompt]:
    """From the head of its lane in order; ends at the first prompt that does not fit. Fewer
    than two: the head goes alone. `free` is the number of rows the batch has room for."""
    found: list[Prompt] = []
    for prompt in lane:
        taken = [*found, prompt]
        padded = len(taken) * max(len(one.tokens) for one in taken)
        if not rules.may_join(taken[0], prompt) or 0 < rules.cap < padded:
            break
        if len(taken) > rules.most or sum(len(one.rows) for one in taken) > free:
            break
        found = taken
    return found if len(found) > 1 else []
