"""Whose draws can be foreseen (speculative, 4)."""

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling.state import remembers
from mlxcel.engine.sequence import Sequence as Row


def is_eligible(row: Row, *, is_head: bool) -> bool:
    """No draw of a row that is held to a constraint. `is_head`: the drafter is one that reads the
    target's hidden states; others are not asked for rows that want log-probabilities or whose
    draws depend on what was said."""
    submit = row.request.submit
    if submit.constraint is not None:
        return False
    return is_head or (submit.top_logprobs is None and not feeds_back(row.sampling))


def feeds_back(sampling: SamplingParams) -> bool:
    return bool(sampling.history_width) or remembers(sampling)
