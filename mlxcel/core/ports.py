"""What one layer asks of another, as small protocols."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Protocol

from mlxcel.core.conversations import Conversations
from mlxcel.core.events import Event
from mlxcel.core.request import GenerationRequest
from mlxcel.core.status import WorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The names and plain facts of the model a generator serves."""

    id: str
    """The id answers carry: the first alias, else the folder name."""
    names: tuple[str, ...]
    """Every name a request may use: id, aliases, folder name, path."""
    aliases: tuple[str, ...]
    family: str
    vocab_size: int
    hidden_size: int
    train_window: int
    context_window: int
    """Tokens per slot as configured; 0: the model's own."""


class CacheControl(Protocol):
    """The prompt cache from outside. Everything raises Unavailable while the model is not there,
    WorkerDied and AnswerTimeout."""

    async def stats(self) -> dict[str, Any]:
        """Every key in every state: configuration, gauges, counters."""
        ...

    async def reset(self) -> dict[str, Any]:
        """Forgets all that is kept; returns `cleared`, `freed_bytes` and `freed_entries`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFile:
    """What was written to a file, or read from it."""

    tokens: int
    size_bytes: int
    took_ms: float


class Slots(Protocol):
    """The tokens of the slots, kept in files. All three actions raise Unavailable while the slot
    is at work; those with a name raise BadRequest for one that is no plain name of a file."""

    def check_kept(self) -> None:
        """Raises NotImplementedHere where there is no folder for the files."""
        ...

    @property
    def count(self) -> int:
        """How many there are. Raises Unavailable before the model was there once."""
        ...

    async def save(self, slot: int, name: str) -> SlotFile: ...

    async def restore(self, slot: int, name: str) -> SlotFile:
        """Raises BadRequest for a file that is missing or does not fit the model."""
        ...

    def erase(self, slot: int) -> int:
        """Returns how many tokens it held."""
        ...


class Generator(Protocol):
    """The chat model as the HTTP side sees it."""

    @property
    def model(self) -> ServedModel: ...

    @property
    def cache(self) -> CacheControl: ...

    @property
    def slots(self) -> Slots: ...

    @property
    def conversations(self) -> Conversations | None:
        """None: requests belong to no conversation."""
        ...

    def status(self) -> WorkerStatus: ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Events of one request.

        Everything that can refuse the request raises an `MlxcelError` before the first event.
        The first event is `Accepted`. Closing the generator early cancels the request.
        """
        ...
