"""The events of a request on their way to its client, counted."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from mlxcel.core.events import Accepted, Event, Failed, Finished
from mlxcel.metrics.meter import RequestMeter


async def metered(
    events: AsyncGenerator[Event, None], meter: RequestMeter, *, is_counted: bool
) -> AsyncGenerator[Event, None]:
    """Closes `events`."""
    is_open = False
    try:
        async with aclosing(events):
            async for event in events:
                match event:
                    case Accepted():
                        is_open = True
                    case Finished():
                        is_open = False
                        meter.answered(event.usage, event.timings, is_counted=is_counted)
                    case Failed():
                        is_open = False
                        meter.failed()
                yield event
    except Exception:
        if is_open:
            is_open = False
            meter.failed()
        raise
    finally:
        if is_open:
            meter.cancelled()
