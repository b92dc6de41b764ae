"""Where a worker runs: its own process, a thread of the front, or the front's event loop.

One interface for the three; the key `workers.placement` picks.
"""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from mlxcel.core.errors import StartupError
from mlxcel.link.local import InlineLink, ThreadLink
from mlxcel.link.messages import FromWorker, ToWorker, WorkerSpec
from mlxcel.link.process import ProcessLink
from mlxcel.link.watch import Beat


class Link(Protocol):
    """One running incarnation of a worker. Made, used and closed on the event loop."""

    @property
    def pid(self) -> int: ...

    @property
    def how(self) -> str:
        """How it ended, once `messages` has ended: `killed by SIGKILL`."""
        ...

    def send(self, message: ToWorker) -> bool:
        """Never blocks; False when the worker is gone."""
        ...

    def messages(self) -> AsyncIterator[FromWorker]:
        """All the worker says, in order; ends when the worker has ended."""
        ...

    def beat(self) -> Beat | None:
        """The newest heartbeat since the last call."""
        ...

    def terminate(self) -> None:
        """Tells it to end, also while it loads. A tick that runs is finished first."""
        ...

    def kill(self) -> None:
        """Ends it now. A thread cannot be killed: it is abandoned."""
        ...

    def close(self) -> None:
        """Gives back what the link holds, and kills a worker that is still there."""
        ...


LINKS: dict[str, Callable[[WorkerSpec], Link]] = {
    "process": ProcessLink,
    "thread": ThreadLink,
    "inline": InlineLink,
}


def open_link(placement: str, spec: WorkerSpec) -> Link:
    """Starts an incarnation; StartupError when that is impossible."""
    link = LINKS.get(placement)
    if link is None:
        raise StartupError(f"workers.placement = {placement!r} is not one of {', '.join(LINKS)}")
    return link(spec)
