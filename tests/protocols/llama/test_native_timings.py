"""Timings on every frame of a native stream: from the first token and a clock."""

from collections.abc import Iterator
from typing import Any

from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    PromptProgress,
    Started,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.protocols.base import Head
from mlxcel.protocols.llama.stream import CompletionEncoder
from tests.protocols.llama.reading import completion_read

EVENTS: list[Event] = [
    Accepted(10),
    PromptProgress(10, 4, 8, 20.0),
    Started(queued_ms=1.0, prompt_ms=30.0, cached_tokens=4),
    TextDelta("a", ids=(1,)),
    TextDelta("b", ids=(2, 3)),
    ChoiceFinished(FinishReason.EOS),
    Finished(
        usage=Usage(prompt_tokens=10, completion_tokens=3, cached_tokens=4),
        timings=Timings(queued_ms=1.0, prompt_ms=30.0, decode_ms=50.0, total_ms=81.0),
    ),
]


def bodies(**fields: Any) -> list[Any]:
    ticks: Iterator[float] = iter([100.0, 100.0, 100.040])
    read = completion_read(stream=True, return_progress=True, **fields)
    encoder = CompletionEncoder(
        Head(id="c", created=0, model="m"), read.shape, clock=lambda: next(ticks)
    )
    return [frame.data for event in EVENTS for frame in encoder.encode(event)]


def test_every_frame_says_how_far_it_is() -> None:
    progress, first, second, final = (body["timings"] for body in bodies(timings_per_token=True))
    assert (progress["cache_n"], progress["prompt_n"], progress["prompt_ms"]) == (4, 4, 20.0)
    assert (progress["predicted_n"], progress["predicted_ms"]) == (0, 0.0)
    assert (first["cache_n"], first["prompt_n"], first["prompt_ms"]) == (4, 6, 30.0)
    assert (first["predicted_n"], first["predicted_ms"]) == (1, 0.0)
    assert (first["predicted_per_second"], first["predicted_per_token_ms"]) == (0.0, 0.0)
    assert (second["predicted_n"], second["predicted_ms"]) == (3, 40.0)
    assert (second["predicted_per_second"], second["predicted_per_token_ms"]) == (50.0, 20.0)
    assert (final["predicted_ms"], final["predicted_per_second"]) == (50.0, 40.0)


def test_without_asking_only_the_last_frame_has_them() -> None:
    assert ["timings" in body for body in bodies()] == [False, False, False, True]
