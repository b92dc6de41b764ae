"""What one layer asks of another, as small protocols."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

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


class Generator(Protocol):
    """The chat model as the HTTP side sees it."""

    @property
    def model(self) -> ServedModel: ...

    def status(self) -> WorkerStatus: ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Events of one request.

        Everything that can refuse the request raises an `MlxcelError` before the first event.
        The first event is `Accepted`. Closing the generator early cancels the request.
        """
        ...
