"""What a row forgets when its window is full and it may go on all the same: context shift.

What is left is read anew (engine contract, cache 9: the simplest exact way): moving keys to other
positions would need a model's own rotation, and only of the tokens that stayed.
"""

from dataclasses import dataclass

LEAST_SHARE = 64
"""Whoever forgets a token at a time has the whole window read anew for every token it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftRules:
    window: int
    """Tokens a slot holds; 0: unbounded, nothing is ever forgotten."""
    keep: int
    """First tokens that stay; -1: the whole prompt."""

    def is_due(self, length: int) -> bool:
        """No place is left behind so many tokens."""
        return 0 < self.window <= length + 1

    def left_of(
        self, tokens: tuple[int, ...], prompt: int, *, keep: int | None = None, discard: int = 0
    ) -> tuple[int, ...] | None:
        """The first tokens and the newer half of the others; `prompt` is the length of the prompt
        among them. `keep` of a request goes before the server's; `discard` is how many of the
        others go instead of half of them, at least `LEAST_SHARE` of the window: the last one stays
        in any case. None: nothing can be forgotten."""
        first = self.keep if keep is None else keep
        kept = prompt if first < 0 else min(first, len(tokens))
        others = len(tokens) - kept
        asked = discard if discard else others // 2
        gone = min(max(asked, self.window // LEAST_SHARE), others - 1)
        return (*tokens[:kept], *tokens[kept + gone :]) if gone > 0 else None
