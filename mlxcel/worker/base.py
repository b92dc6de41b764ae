"""The shape of a worker: it owns one model and one loop, and speaks messages.

Knows nothing of processes, sockets, HTTP or text.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from mlxcel.core.status import ModelInfo
from mlxcel.link.messages import Frame, ToWorker

Progress = Callable[[str, float | None], None]
"""Called with a start-up step and how far it is (0..1, or None when that is unknown)."""


class Worker(ABC):
    """Base of all workers. One thread or process calls every method, in this order:
    `__init__`, `setup` once, `take` and `tick` over and over, `close` once."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @abstractmethod
    def setup(self, parts: Mapping[str, Any], progress: Progress) -> ModelInfo:
        """Take the parts that were built for this worker, by port name, and become ready."""

    @abstractmethod
    def take(self, inbox: list[ToWorker]) -> Frame | None:
        """Take the messages, without doing what they ask for. Returns what can be said of them
        at once: that a request is in the queue, or why not. It leaves before the work begins."""

    @abstractmethod
    def tick(self, inbox: list[ToWorker]) -> tuple[Frame | None, float | None]:
        """One turn: take the messages, do one bounded piece of work.

        Returns the frame to send, if any, and how long the loop may sleep in seconds:
        0 when there is more work, None until a message arrives.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what the worker holds. Called on the thread that ran it."""
