"""The queue of prompts: three lanes, first in first out inside each. No ageing: low waits while
higher lanes are never empty."""

from collections import deque
from collections.abc import Callable, Iterator

from mlxcel.core.request import Lane
from mlxcel.engine.prompt import Prompt


class Lanes:
    """Owned by the tick."""

    def __init__(self, *, ignores_lanes: bool = False) -> None:
        """`ignores_lanes`: first in, first out, whatever was asked for."""
        self._lanes = {lane: deque[Prompt]() for lane in Lane}
        self._ignores_lanes = ignores_lanes

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[Prompt]:
        """In the order in which they will be taken."""
        for lane in Lane:
            yield from self._lanes[lane]

    @property
    def head(self) -> Prompt | None:
        return next(iter(self), None)

    def push(self, prompt: Prompt) -> None:
        self._lane_of(prompt).append(prompt)

    def push_front(self, prompt: Prompt) -> None:
        """For one that was taken and not finished, or preempted: it goes on first in its lane."""
        self._lane_of(prompt).appendleft(prompt)

    def pop(self) -> Prompt:
        return next(lane for lane in self._lanes.values() if lane).popleft()

    def lane_of_head(self) -> Iterator[Prompt]:
        """In order, the head first."""
        lane = next((lane for lane in self._lanes.values() if lane), deque())
        yield from lane

    def sweep(self, is_gone: Callable[[Prompt], bool]) -> None:
        """Drop what nobody waits for any more."""
        for lane, prompts in self._lanes.items():
            self._lanes[lane] = deque(prompt for prompt in prompts if not is_gone(prompt))

    def _lane_of(self, prompt: Prompt) -> deque[Prompt]:
        return self._lanes[Lane.NORMAL if self._ignores_lanes else prompt.lane]
