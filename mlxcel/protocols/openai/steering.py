"""What watches over an answer: the loop guard and the budget of thinking."""

from mlxcel.core.errors import BadRequest
from mlxcel.core.steering import LoopGuard
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.numbers import INT32_MAX, given

LOOP_FIELDS = ("min_pattern_size", "max_pattern_size", "min_count")
BUDGET = "thinking_budget_tokens"
BUDGETS = ((BUDGET, "reasoning_budget_tokens"), ("thinking_token_budget",), ("thinking_budget",))
"""The first that is there counts; names of one row are spellings of one field."""


def read_loop(fields: Reader) -> LoopGuard | None:
    """None: no field was sent. One alone is enough to lay the server's own guard aside."""
    sent = [fields.integer(name, minimum=0) for name in LOOP_FIELDS]
    if sent == [None, None, None]:
        return None
    shortest, longest, count = (min(given(value, 0), INT32_MAX) for value in sent)
    return LoopGuard(shortest=max(shortest, 1), longest=longest, count=count)


def read_thinking_budget(fields: Reader, max_tokens: int) -> int | None:
    """Tokens; -1: no cap, also where the server has one; None: the server's own."""
    sent = [(fields.pick(*names)[0], fields.integer(*names)) for names in BUDGETS]
    name, budget = next((row for row in sent if row[1] is not None), (BUDGET, None))
    if budget is None:
        return None
    if budget < -1:
        raise _refused(name, f"must be >= -1 (-1: no cap), got {budget}", "")
    if budget > 0 and budget > max_tokens:
        raise _refused(name, f"must be <= max_tokens ({max_tokens})", f" ({budget})")
    return budget


def _refused(name: str, rule: str, value: str) -> BadRequest:
    """The contract fixes the words and the name in them; an alias is named beside it."""
    alias = "" if name == BUDGET else f"; it was sent as {name}"
    return BadRequest(f"{BUDGET}{value} {rule}{alias}", param=name)
