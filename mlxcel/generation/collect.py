"""An answer in one piece, for requests that are not streamed."""

from collections.abc import AsyncIterator

from mlxcel.core.errors import GenerationFailed, RemoteError
from mlxcel.core.events import Event, Failed, Finished, TextDelta


async def collect(events: AsyncIterator[Event]) -> tuple[str, Finished]:
    """The whole text. Raises the error of a Failed event, and whatever refuses the request."""
    parts: list[str] = []
    async for event in events:
        match event:
            case TextDelta(text=text):
                parts.append(text)
            case Finished():
                return "".join(parts), event
            case Failed(error=error):
                raise RemoteError(error)
    raise GenerationFailed("the events ended without a finish")
