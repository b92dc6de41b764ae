from collections.abc import AsyncIterator

import pytest

from mlxcel.core.answer import Answer, Choice
from mlxcel.core.errors import ErrorInfo, GenerationFailed, RemoteError
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    FinishReason,
    Likely,
    ReasoningDelta,
    TextDelta,
    Timings,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
)
from mlxcel.core.request import ToolCall
from mlxcel.generation.collect import collect

USAGE = Usage(prompt_tokens=3, completion_tokens=4)
TIMINGS = Timings(queued_ms=1, prompt_ms=2, decode_ms=3)
END = Finished(USAGE, TIMINGS)


async def stream(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


def entry(text: str) -> TokenLogprobs:
    return TokenLogprobs(Likely(text, -1.0, text.encode()), ())


@pytest.mark.asyncio
async def test_choices_are_in_their_order_with_all_that_was_told() -> None:
    answer = await collect(
        stream(
            Accepted(3),
            TextDelta("x", 1),
            ReasoningDelta("I ", 0, (entry("I"),)),
            ReasoningDelta("think"),
            ChoiceFinished(FinishReason.STOP, 1, "!"),
            TextDelta("", 0, (entry("m"),)),
            TextDelta("Yes", 0, (entry("Yes"),)),
            ToolCallDelta(0, "c1", "f", "{}"),
            ToolCallDelta(2, "c2", "g", '{"a":1}'),
            ChoiceFinished(FinishReason.TOOL_CALLS),
            ChoiceFinished(FinishReason.LENGTH, 2, None, True),
            END,
        )
    )
    calls = (
        ToolCall(id="c1", name="f", arguments="{}"),
        ToolCall(id="c2", name="g", arguments='{"a":1}'),
    )
    first = Choice(
        reason=FinishReason.TOOL_CALLS,
        text="Yes",
        reasoning="I think",
        calls=calls,
        logprobs=(entry("I"), entry("m"), entry("Yes")),
    )
    second = Choice(reason=FinishReason.STOP, text="x", matched_stop="!")
    third = Choice(reason=FinishReason.LENGTH, reasoning_only=True)
    assert answer == Answer(choices=(first, second, third), usage=USAGE, timings=TIMINGS)


@pytest.mark.asyncio
async def test_failure_is_raised() -> None:
    failed = Failed(ErrorInfo(code="worker_died", status=503, message="gone"))
    with pytest.raises(RemoteError, match="gone"):
        await collect(stream(Accepted(3), TextDelta("x"), failed))


@pytest.mark.asyncio
async def test_events_that_break_off_are_a_failure() -> None:
    with pytest.raises(GenerationFailed, match="without a finish"):
        await collect(stream(Accepted(3), ChoiceFinished(FinishReason.EOS)))
