"""Responses through the official client: what is asked for is what comes back."""

from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.whole.program import Program
from tests.whole.scenarios.asking import refused, settle, together
from tests.whole.scenarios.conftest import Connect
from tests.whole.scenarios.responder import (
    ALWAYS,
    as_sent,
    body,
    check,
    count,
    events,
    helped,
    plain,
    respond,
    thrice,
    turn,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

PIXEL = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
UNSAID: dict[str, Any] = {
    "background": False,
    "conversation": None,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
    "user": None,
}
"""What a response repeats of a request that said nothing of it."""
OPTIONAL = (
    *("background", "conversation", "include", "instructions", "max_output_tokens"),
    *("max_tool_calls", "metadata", "parallel_tool_calls", "previous_response_id"),
    *("prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "store"),
    *("stream", "stream_options", "temperature", "text", "tool_choice", "tools"),
    *("top_logprobs", "top_p", "truncation", "user"),
)


def part(text: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": kind, "text": text}


# Answers


async def test_an_answer(connect: Connect, scripted: Program) -> None:
    answer = await thrice(connect(scripted), "héllo")
    assert (answer.output_text, answer.status, answer.model) == ("héllo", "completed", "echo")
    assert (answer.object, answer.error) == ("response", None)
    [said] = answer.output
    assert said.type == "message"
    assert (said.role, said.status) == ("assistant", "completed")
    [told] = said.content
    assert told.to_dict() == {
        "type": "output_text",
        "text": "héllo",
        "annotations": [],
        "logprobs": [],
    }
    assert answer.usage is not None
    assert answer.usage.output_tokens == 6
    assert answer.created_at <= (answer.completed_at or 0)


async def test_what_was_not_said_has_its_default(connect: Connect, scripted: Program) -> None:
    sent = as_sent(await respond(connect(scripted)))
    assert {key: sent[key] for key in UNSAID} == UNSAID
    # The rest has values of its own.
    assert ALWAYS - set(UNSAID) == {
        *("id", "object", "created_at", "completed_at", "status", "model", "output", "usage"),
        *("output_text", "reasoning", "temperature", "top_p"),
        *("frequency_penalty", "presence_penalty"),
    }


async def test_characters_are_never_broken(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    assert (await thrice(ai, "日本 🗻")).output_text == "日本 🗻"
    assert "\ufffd" not in str(await events(ai, "日本 🗻"))


async def test_what_is_sent_is_what_is_repeated(connect: Connect, scripted: Program) -> None:
    said: dict[str, Any] = {
        "instructions": "be brief",
        "max_output_tokens": 99,
        "max_tool_calls": 3,
        "metadata": {"job": "7"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "key",
        "safety_identifier": "hash",
        "service_tier": "flex",
        "store": False,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "none",
        "top_logprobs": 2,
        "top_p": 0.5,
        "user": "eve",
    }
    answer = await thrice(connect(scripted), **said, truncation="disabled")
    sent = as_sent(answer)
    assert {key: sent[key] for key in said} == said


async def test_one_who_is_identified_is_the_user(connect: Connect, scripted: Program) -> None:
    answer = await respond(connect(scripted), safety_identifier="hash")
    assert (answer.user, answer.safety_identifier) == ("hash", "hash")


async def test_null_is_as_good_as_nothing(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    bare, sent = await respond(ai), body("hello", **dict.fromkeys(OPTIONAL))
    answer = await settle(ai.responses.create(**sent))
    check(answer)
    assert plain(answer) == plain(bare)


async def test_fields_that_add_nothing_are_no_trouble(connect: Connect, scripted: Program) -> None:
    newer = {"a_field_of_next_year": {"x": 1}, "prompt_cache_options": {"mode": "explicit"}}
    answer = await respond(
        connect(scripted),
        include=["message.output_text.logprobs", "web_search_call.action.sources"],
        prompt_cache_retention="24h",
        extra_body=newer,
        extra_query={"api-version": "1"},
    )
    assert answer.output_text == "hello"


async def test_several_at_once_are_kept_apart(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    texts = [f"number {n}" for n in range(4)]

    def asks(text: str) -> Any:
        return lambda: ai.responses.create(**body(text))

    found: list[Response] = await together(ai, [asks(text) for text in texts])
    assert [answer.output_text for answer in found] == texts
    assert len({answer.id for answer in found}) == 4


# Input


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([turn("user", "one, two")], id="item"),
        pytest.param([{"role": "user", "content": "one, two"}], id="bare"),
        pytest.param([turn("user", [part("one, "), part("two")])], id="parts"),
        pytest.param([turn("user", [part("one, two", "text")])], id="part-of-chat"),
        pytest.param([turn("user", "one, two", id="msg_1", status="completed")], id="own-id"),
    ],
)
async def test_forms_of_one_message(connect: Connect, scripted: Program, sent: Any) -> None:
    ai = connect(scripted)
    answer, alike = await thrice(ai, sent), await respond(ai, "one, two")
    assert answer.output_text == "one, two"
    assert plain(answer) == plain(alike)


async def test_many_turns(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    sent = [
        turn("developer", "be kind"),
        turn("user", "first", name="ann"),
        turn("assistant", [part("one", "output_text") | {"annotations": [], "logprobs": []}]),
        turn("user", "second"),
        turn("assistant", [{"type": "refusal", "refusal": "no"}]),
        turn("user", ""),
        turn("user", "third"),
    ]
    answer = await thrice(ai, sent)
    assert answer.output_text == "third"
    assert answer.usage is not None
    assert answer.usage.input_tokens == await count(ai, sent) > await count(ai, sent[1:])


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_instructions_are_a_system_turn(
    connect: Connect, scripted: Program, role: str
) -> None:
    ai, user = connect(scripted), turn("user", "hello")
    alike = await count(ai, [turn(role, "be brief"), user])
    assert await count(ai, instructions="be brief") == alike
    both = await respond(ai, [turn(role, "be kind"), user], instructions="be brief")
    assert both.instructions == "be brief"
    assert both.usage is not None
    assert both.usage.input_tokens == await count(ai, [turn(role, "be brief\n\nbe kind"), user])


async def test_instructions_alone_are_enough(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    assert (await respond(ai, " ", instructions="begin")).status == "completed"
    for nothing in (" ", [], [turn("user", "")], [turn("user", [])]):
        error = await refused(openai.BadRequestError, ai.responses.create, **body(nothing))
        assert error.param == "input"


async def test_what_cannot_be_seen_is_not_supported(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    seen = {"type": "function_call_output", "call_id": "call_1", "output": [PIXEL]}
    for item in (turn("user", [part("what is this?"), PIXEL]), seen):
        sent = body([turn("user", "hello"), item])
        error = await refused(openai.InternalServerError, ai.responses.create, **sent)
        assert (error.status_code, error.type) == (501, "not_supported_error")
        assert (error.param or "").startswith("input[1].")


# What ends an answer


async def test_the_limit_makes_it_incomplete(connect: Connect, scripted: Program) -> None:
    answer = await thrice(connect(scripted), "abcdef", max_output_tokens=3)
    assert (answer.output_text, answer.status) == ("abc", "incomplete")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert [item.status for item in answer.output] == ["incomplete"]  # type: ignore[union-attr]
    assert answer.usage is not None
    assert answer.usage.output_tokens == 3


async def test_the_older_limit_wins(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await respond(ai, "abcdef", max_output_tokens=5, extra_body={"max_tokens": 2})
    assert answer.output_text == "ab"


async def test_a_stop_text_ends_it(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    sent = body("one. two! three", extra_body={"stop": ["!", "three"]})
    answer = await settle(ai.responses.create(**sent))
    check(answer)
    assert (answer.output_text, answer.status) == ("one. two", "completed")
    streamed = (await events(ai, "one. two! three", extra_body={"stop": "!"}))[-1].response
    assert streamed.output_text == "one. two"


async def test_nothing_said_is_a_message_still(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await respond(ai, "!", extra_body={"stop": "!"})
    assert (answer.output_text, answer.status) == ("", "completed")
    assert [item.type for item in answer.output] == ["message"]
    _, final = await helped(ai, "!", extra_body={"stop": "!"})
    assert (final.output_text, final.status) == ("", "completed")


# How it is said


async def test_a_seed_says_the_same_again(connect: Connect, tiny_server: Program) -> None:
    ai, hot = connect(tiny_server), {"temperature": 2.0, "top_p": 1.0, "max_output_tokens": 16}
    texts = [
        (await respond(ai, **hot, extra_body={"seed": seed, "top_k": 0, "min_p": 0})).output_text
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


async def test_greedy_is_the_same_in_all_forms(connect: Connect, tiny_server: Program) -> None:
    answer = await thrice(connect(tiny_server), temperature=0, max_output_tokens=12)
    assert answer.temperature == 0
    assert answer.output_text


async def test_a_bias_is_kept_to(connect: Connect, tiny_server: Program) -> None:
    extra = {"logit_bias": {str(ord("A")): 100}}
    answer = await respond(connect(tiny_server), max_output_tokens=8, extra_body=extra)
    assert answer.output_text == "A" * 8


async def test_what_was_read_is_found_again(connect: Connect, thinker: Program) -> None:
    """A second turn of a session, by its key."""
    ai, long = connect(thinker), "many words of one session, " * 12
    fields: Any = {"prompt_cache_key": f"ann-{type(ai).__name__}", "max_output_tokens": 2}
    first = await respond(ai, long, **fields)
    assert first.usage is not None
    assert first.usage.input_tokens_details.cached_tokens == 0
    second = await respond(ai, f"{long} and more", **fields)
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens > len(long) - 64
    assert second.usage.input_tokens == await count(ai, f"{long} and more")
