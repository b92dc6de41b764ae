"""The answers that are being streamed now, by the ids their chunks carry, for those who steer them
from another request.

Owned by the event loop.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mlxcel.core.errors import MlxcelError


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    owner: str
    is_controllable: bool
    cut: Callable[[MlxcelError], None]
    """Ends it; its client is told the error."""


class LiveAnswers:
    def __init__(self) -> None:
        self._answers: dict[str, LiveAnswer] = {}

    @contextmanager
    def enter(self, answer_id: str, answer: LiveAnswer) -> Iterator[None]:
        self._answers[answer_id] = answer
        try:
            yield
        finally:
            del self._answers[answer_id]

    def find(self, answer_id: str, owner: str) -> LiveAnswer | None:
        """That of another owner does not exist for this one."""
        answer = self._answers.get(answer_id)
        return answer if answer is not None and answer.owner == owner else None
