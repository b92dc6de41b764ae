"""What the service checks ahead, watches over and cuts short."""

import asyncio
import logging
import math
from dataclasses import replace

import msgspec
import pytest

from mlxcel.core.errors import (
    BadField,
    BadRequest,
    QueueFull,
    StartupError,
)
from mlxcel.core.events import (
    Accepted,
    Failed,
    FinishReason,
    TextDelta,
)
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.status import State, WorkerStatus
from mlxcel.generation.collect import collect
from mlxcel.generation.service import EVENTS_A_TURN
from mlxcel.link.messages import (
    RowAccepted,
    RowEnded,
    RowPaused,
    RowTokens,
)
from tests.generation.scripted import (
    BEGAN,
    INFO,
    SILENCE,
    STARTED,
    ScriptedChat,
    request,
    rows,
    service,
)
from tests.settings import settings


@pytest.mark.asyncio
async def test_watchdog_fails_a_row_that_has_begun_and_falls_silent() -> None:
    chat = ScriptedChat([RowAccepted("r1"), STARTED, RowTokens(id="r1", ids=[97]), SILENCE])
    short = settings(decode_timeout_s=0.01)
    events = [e async for e in service(chat).generate(replace(request(), settings=short))]
    assert isinstance(events[-1], Failed)
    assert (events[-1].error.code, events[-1].error.status) == ("decode_timeout", 504)
    assert chat.cancelled


@pytest.mark.asyncio
async def test_watchdog_leaves_a_silent_prefill_alone() -> None:
    chat = ScriptedChat([RowAccepted("r1"), SILENCE])
    short = settings(decode_timeout_s=0.01)
    events = service(chat).generate(replace(request(), settings=short))
    assert await anext(events) == Accepted(5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(events), 0.1)


@pytest.mark.asyncio
async def test_watchdog_leaves_a_paused_row_alone_until_its_next_token() -> None:
    token = RowTokens(id="r1", ids=[97])
    chat = ScriptedChat([RowAccepted("r1"), STARTED, token, RowPaused("r1"), SILENCE])
    short = replace(request(), settings=settings(decode_timeout_s=0.01))
    events = service(chat).generate(short)
    told = [await anext(events) for _ in range(3)]
    assert told == [Accepted(5), BEGAN, TextDelta("a")]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(events), 0.1)
    chat.rows = [RowAccepted("r1"), STARTED, token, RowPaused("r1"), token, SILENCE]
    assert isinstance([e async for e in service(chat).generate(short)][-1], Failed)


@pytest.mark.asyncio
async def test_others_have_a_turn_while_rows_are_ready() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    many = [RowTokens(id="r1", ids=[97]) for _ in range(10 * EVENTS_A_TURN)]
    chat = ScriptedChat([RowAccepted("r1"), STARTED, *many, *rows(b"a")[-2:]])
    events = service(chat).generate(request())
    await anext(events)
    counter = asyncio.create_task(count())
    await asyncio.sleep(0)
    before = turns
    await collect(events)
    assert turns - before >= 10
    counter.cancel()


@pytest.mark.asyncio
async def test_form_and_budget_are_checked_before_the_place() -> None:
    chat = ScriptedChat(refusal=QueueFull())
    broken = OutputFormat(kind=OutputKind.LARK, source="start: nothing_like_it")
    with pytest.raises(BadField, match="response_format"):
        await anext(service(chat).generate(replace(request(), output=broken)))
    long = replace(request(), max_tokens=100, thinking_budget=65)
    with pytest.raises(BadRequest) as caught:
        await anext(service(chat).generate(long))
    assert caught.value.message == "thinking_budget_tokens (65) must be <= max_tokens (64)"
    assert caught.value.param == "thinking_budget_tokens"
    for fitting in (64, -1, None):
        with pytest.raises(QueueFull):
            await anext(service(chat).generate(replace(long, thinking_budget=fitting)))


def test_bias_on_a_token_the_tokenizer_does_not_know_stops_the_start() -> None:
    rule = r"generation\.sampling\.logit_bias: token 99999 is not in the vocabulary of echo, whose"
    with pytest.raises(StartupError, match=rule):
        service(ScriptedChat(), sampling={"logit_bias": [[5, 1.0], [99999, 1.0]]})


@pytest.mark.asyncio
async def test_bias_of_the_operator_on_a_token_without_logits_is_left_out_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chat = ScriptedChat(rows(b"yes"))
    chat.state = WorkerStatus(
        name="chat", state=State.OK, model=msgspec.structs.replace(INFO, vocab_size=260)
    )
    text = service(chat, sampling={"logit_bias": [[5, 1.0], [261, "-inf"]]})
    merged = SamplingParams(bias=((5, 1.0), (261, -math.inf)))
    for _ in range(2):
        await collect(text.generate(replace(request(), sampling=merged)))
    assert [one.sampling.bias for one in chat.submitted] == [((5, 1.0),)] * 2
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 1
    own = SamplingParams(bias=((262, 1.0),))
    with pytest.raises(BadField, match="logit_bias: token 262"):
        await collect(text.generate(replace(request(), sampling=own)))


@pytest.mark.asyncio
async def test_ignored_budget_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    text = service(ScriptedChat(rows(b"yes")))
    for budget in (None, 3, 0):
        await collect(text.generate(replace(request(), thinking_budget=budget)))
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warnings == ["a thinking budget is ignored: echo has no think markers"]


@pytest.mark.asyncio
async def test_stopped_choice_is_cancelled_alone_and_the_others_go_on() -> None:
    said = [RowTokens(id="r1", ids=list(text), choice=n) for n, text in enumerate([b"a!", b"b"])]
    ended = [RowEnded(id="r1", reason=FinishReason.EOS, choice=1), rows(b"abc")[-1]]
    chat = ScriptedChat([RowAccepted("r1"), STARTED, *said, *ended])
    asked = replace(request(stop=("!",)), choices=2)
    answer = await collect(service(chat).generate(asked))
    assert [choice.text for choice in answer.choices] == ["a", "b"]
    assert chat.cut == [0]
