"""Who hears an answer beside the client it is for."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from mlxcel.core.events import Event
from mlxcel.generation.assemble import Assembler
from mlxcel.link.messages import RowEvent


class Listener(Protocol):
    """Of one request; hears all of it, in order, each event before the client does."""

    def hear(self, row: RowEvent) -> None: ...

    def told(self, event: Event) -> None: ...


def heard(answer: Assembler, row: RowEvent, listeners: Sequence[Listener]) -> Iterator[Event]:
    """The events that a row makes."""
    for listener in listeners:
        listener.hear(row)
    for event in answer.take(row):
        for listener in listeners:
            listener.told(event)
        yield event
