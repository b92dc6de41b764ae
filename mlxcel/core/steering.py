"""What watches over a row beside its sampling: think block, constraint, loop guard."""

import msgspec


class LoopGuard(msgspec.Struct, frozen=True, kw_only=True):
    """Ends an answer whose last tokens are one block of `shortest` to `longest` tokens, `count`
    times over. `longest` 0 or `count` below 2: off."""

    shortest: int
    longest: int
    count: int

    @property
    def is_on(self) -> bool:
        return self.longest > 0 and self.count >= 2


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """How a model thinks, as token ids, and how long it may."""

    open_ids: tuple[int, ...]
    close_ids: tuple[int, ...]
    message_ids: tuple[int, ...] = ()
    """Said before `close_ids` when the budget closes the block."""
    budget: int = -1
    """Tokens inside the block; -1: no cap."""
    is_open: bool = False
    """The prompt ends inside a block."""
    may_be_ended: bool = False
    """`EndThinking` may come for it."""


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """What wakes a constraint that sleeps: one of these tokens, or an expression (RE2) over the
    text of the answer so far. What its first group matched, else all that it matched, is the
    beginning of what the grammar is held to."""

    tokens: tuple[int, ...] = ()
    pattern: str = ""
    is_full: bool = False
    """The expression must match the whole answer so far."""


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer must look like, compiled: a grammar in llguidance's own form."""

    grammar: str
    after_thinking: bool = False
    """It binds from the end of the think block, or from the start when there is none."""
    triggers: tuple[Trigger, ...] = ()
    """It binds from the first of these on; empty: at once. Until then the answer is free, and may
    end."""
