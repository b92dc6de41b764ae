"""What a row forgets when its window is full and it may go on all the same: context shift.

What is left is read anew (engine contract, cache 9: the simplest exact way): moving keys to other
positions would need a model's own rotation, and only of the tokens that stayed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftRules:
    window: int
    """Tokens a slot holds; 0: unbounded, nothing is ever forgotten."""
    keep: int
    """First tokens that stay; -1: the whole prompt."""

    def is_due(self, length: int) -> bool:
        """No place is left behind so many tokens."""
        return 0 < self.window <= length + 1

    def left_of(self, tokens: tuple[int, ...], prompt: int) -> tuple[int, ...] | None:
        """The first tokens and the newer half of the others; `prompt` is the length of the prompt
        among them. None: nothing can be forgotten."""
        kept = prompt if self.keep < 0 else min(self.keep, len(tokens))
        discard = (len(tokens) - kept) // 2
        return (*tokens[:kept], *tokens[kept + discard :]) if discard else None
