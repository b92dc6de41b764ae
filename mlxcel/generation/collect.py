"""An answer in one piece, for requests that are not streamed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from mlxcel.core.errors import GenerationFailed, RemoteError
from mlxcel.core.events import Event, Failed, Finished, FinishReason, TextDelta, Timings, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    text: str
    reason: FinishReason
    usage: Usage
    timings: Timings
    matched_stop: str | None = None


async def collect(events: AsyncIterator[Event]) -> Collected:
    """Raises the error of a Failed event, and whatever refuses the request."""
    parts: list[str] = []
    async for event in events:
        match event:
            case TextDelta(text=text):
                parts.append(text)
            case Finished():
                return _collected(parts, event)
            case Failed(error=error):
                raise RemoteError(error)
    raise GenerationFailed("the events ended without a finish")


def _collected(parts: list[str], finished: Finished) -> Collected:
    return Collected(
        text="".join(parts),
        reason=finished.reason,
        usage=finished.usage,
        timings=finished.timings,
        matched_stop=finished.matched_stop,
    )
