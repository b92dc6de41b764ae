"""What a rule is, and what it may find."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.spec import Clamp

Tree = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A value left open (`auto`, -1) that is decided as anybody would expect: no news."""

    key: str
    used: object


Finding = Clamp | Settled | Problem | str
"""A plain string is a warning."""
Rule = Callable[[Tree, Card | None], Iterable[Finding]]
