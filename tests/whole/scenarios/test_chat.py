"""Chats through the official client, sync and async: what is asked for is what comes back."""

from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from openai.types.chat import ChatCompletion

from tests.whole.program import Program
from tests.whole.scenarios.asking import (
    body,
    chat,
    chunks,
    first,
    joined,
    listed,
    reason_of,
    settle,
    text_of,
    together,
)
from tests.whole.scenarios.conftest import Connect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

FRANCE = "What is the capital of France?"
A, B = 65, 66
"""Token ids of the tiny model, which speaks bytes."""
HOT: dict[str, Any] = {
    "temperature": 2.0,
    "top_p": 1.0,
    "max_tokens": 16,
    "extra_body": {"top_k": 0, "min_p": 0},
}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
LETTERS = {str(byte): 100 for byte in range(A, A + 26)}
"""A `logit_bias`: every token is a character."""

OPTIONAL = (
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "prompt_cache_key",
)


async def test_an_answer_in_one_piece(connect: Connect, scripted: Program) -> None:
    answer = await chat(connect(scripted), "héllo")
    assert (answer.object, answer.model, answer.system_fingerprint) == (
        "chat.completion",
        "echo",
        None,
    )
    [choice] = answer.choices
    assert choice.message.to_dict() == {"role": "assistant", "content": "héllo"}
    assert (choice.finish_reason, choice.logprobs) == ("stop", None)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


async def test_a_stream_says_the_same_in_pieces(connect: Connect, scripted: Program) -> None:
    found = await chunks(connect(scripted), "日本 🗻")
    assert joined(found) == "日本 🗻"
    assert "\ufffd" not in str([chunk.to_dict() for chunk in found]), "no broken character"
    assert reason_of(found) == "stop"
    assert [chunk.usage for chunk in found] == [None] * len(found)
    assert found[0].object == "chat.completion.chunk"


async def test_usage_comes_last_in_a_stream_that_asks(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    found = await chunks(ai, stream_options={"include_usage": True})
    whole = await chat(ai)
    assert [chunk.usage for chunk in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1].usage == whole.usage
    assert await chunks(ai, stream_options={"include_usage": False}) != []


@pytest.mark.slow
async def test_a_real_model_knows_its_capitals(connect: Connect, smollm2: Program) -> None:
    ai, fields = connect(smollm2), {"temperature": 0, "max_completion_tokens": 12}
    whole = await chat(ai, FRANCE, **fields)
    assert "Paris" in text_of(whole)
    found = await chunks(ai, FRANCE, **fields, stream_options={"include_usage": True})
    assert joined(found) == text_of(whole)
    assert reason_of(found) == whole.choices[0].finish_reason
    assert found[-1].usage is not None
    assert whole.usage is not None
    assert found[-1].usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.slow
async def test_developer_is_another_word_for_system(connect: Connect, smollm2: Program) -> None:
    ai, answers = connect(smollm2), {}
    for role in ("developer", "system", "none"):
        turns = [{"role": role, "content": "Answer in French."}, {"role": "user", "content": "Hi"}]
        sent = turns[1:] if role == "none" else turns
        answers[role] = await chat(ai, messages=sent, temperature=0, max_tokens=6)
    assert text_of(answers["developer"]) == text_of(answers["system"])
    sizes = {role: answer.usage.prompt_tokens for role, answer in answers.items() if answer.usage}
    # Without either the template has a system message of its own.
    assert sizes["developer"] == sizes["system"] != sizes["none"]


@pytest.mark.slow
async def test_an_answer_that_was_begun_is_continued(connect: Connect, smollm2: Program) -> None:
    begun = "The capital of France is"
    turns = [*body(FRANCE)["messages"], {"role": "assistant", "content": begun}]
    fields: dict[str, Any] = {"messages": turns, "temperature": 0, "max_tokens": 3}
    ai = connect(smollm2)
    whole = text_of(await chat(ai, **fields))
    assert whole.startswith(" Paris")
    assert joined(await chunks(ai, **fields)) == whole
    echoed = await chat(ai, **fields, extra_body={"echo": True})
    assert text_of(echoed) == begun + whole


async def test_content_in_parts_is_the_text_of_them(connect: Connect, scripted: Program) -> None:
    parts = [{"type": "text", "text": "one, "}, {"type": "text", "text": "two"}]
    answer = await chat(connect(scripted), messages=[{"role": "user", "content": parts}])
    assert text_of(answer) == "one, two"


async def test_many_turns_with_names_and_nothing(connect: Connect, scripted: Program) -> None:
    turns = [
        {"role": "system", "content": "be kind", "name": "boss"},
        {"role": "user", "content": "first", "name": "ann"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "second"},
    ]
    answer = await chat(connect(scripted), messages=turns)
    assert text_of(answer) == "second"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > len("be kindfirstsecond")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"max_tokens": 3}, id="max_tokens"),
        pytest.param({"max_completion_tokens": 3}, id="max_completion_tokens"),
        pytest.param({"max_tokens": 9, "max_completion_tokens": 3}, id="the-newer-wins"),
        pytest.param({"extra_body": {"n_predict": 3}}, id="n_predict"),
    ],
)
async def test_a_limit_ends_the_answer(
    connect: Connect, scripted: Program, fields: dict[str, Any]
) -> None:
    ai = connect(scripted)
    answer = await chat(ai, **fields)
    assert (text_of(answer), answer.choices[0].finish_reason) == ("hel", "length")
    found = await chunks(ai, **fields)
    assert (joined(found), reason_of(found)) == ("hel", "length")


@pytest.mark.parametrize("stop", ["lo", ["xyz", "lo", "o w"]], ids=["string", "list"])
async def test_a_stop_ends_the_answer_before_it(
    connect: Connect, scripted: Program, stop: Any
) -> None:
    ai = connect(scripted)
    answer = await chat(ai, "hello world", stop=stop)
    assert (text_of(answer), answer.choices[0].finish_reason) == ("hel", "stop")
    found = await chunks(ai, "hello world", stop=stop)
    assert (joined(found), reason_of(found)) == ("hel", "stop")


async def test_several_choices_of_one_prompt(connect: Connect, tiny_server: Program) -> None:
    """Choice c of seed s is the answer to seed s + c; all are counted."""
    ai, fields = connect(tiny_server), HOT | {"logit_bias": LETTERS}
    answer = await chat(ai, n=3, seed=5, **fields)
    texts = [text_of(answer, choice) for choice in range(3)]
    assert texts == [text_of(await chat(ai, seed=5 + c, **fields)) for c in range(3)]
    assert len(set(texts)) == 3
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3 * 16
    found = await chunks(ai, n=3, seed=5, **fields)
    assert [joined(found, choice) for choice in range(3)] == texts
    assert [reason_of(found, choice) for choice in range(3)] == ["length"] * 3


async def test_a_seed_repeats_itself(connect: Connect, tiny_server: Program) -> None:
    ai = connect(tiny_server)
    one, again, other = [await chat(ai, seed=seed, **HOT) for seed in (7, 7, 8)]
    assert text_of(one) == text_of(again) != text_of(other)
    assert one.id != again.id


async def test_how_likely_each_token_was(connect: Connect, tiny_server: Program) -> None:
    ai = connect(tiny_server)
    fields: Any = {"temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": 3}
    answer = await chat(ai, **fields, logit_bias=LETTERS)
    assert answer.choices[0].logprobs is not None
    places = answer.choices[0].logprobs.content
    assert places is not None
    assert "".join(place.token for place in places) == text_of(answer)
    for place in places:
        assert place.bytes == list(place.token.encode())
        assert place.logprob <= 0
        best = [other.logprob for other in place.top_logprobs]
        assert len(best) == 3
        assert best == sorted(best, reverse=True)
    found = await chunks(ai, **fields, logit_bias=LETTERS)
    streamed = [each.logprobs for chunk in found for each in chunk.choices if each.logprobs]
    assert [place for some in streamed for place in some.content or ()] == places


async def test_likelihood_without_alternatives(connect: Connect, tiny_server: Program) -> None:
    answer = await chat(connect(tiny_server), logprobs=True, max_tokens=4)
    assert answer.choices[0].logprobs is not None
    places = answer.choices[0].logprobs.content or []
    assert [place.top_logprobs for place in places] == [[]] * 4


async def test_a_bias_decides(connect: Connect, tiny_server: Program) -> None:
    ai = connect(tiny_server)
    forced = await chat(ai, logit_bias={str(A): 100}, temperature=0, max_tokens=5)
    assert text_of(forced) == "AAAAA"
    free: Any = {**HOT, "seed": 1, "logit_bias": {str(A): 100, str(B): 100}}
    assert set(text_of(await chat(ai, **free))) == {"A", "B"}
    free["logit_bias"][str(B)] = -100
    assert set(text_of(await chat(ai, **free))) == {"A"}


@pytest.mark.parametrize("field", ["frequency_penalty", "presence_penalty"])
async def test_a_penalty_drives_it_on(connect: Connect, tiny_server: Program, field: str) -> None:
    """Greedy it says the same letter for ever; punished, the next likely one as well."""
    ai, fields = connect(tiny_server), GREEDY
    bias = {str(A): 100, str(B): 90}
    assert text_of(await chat(ai, **fields, logit_bias=bias)) == "A" * 12
    punished: Any = fields | {field: 20.0}
    assert "B" in text_of(await chat(ai, **punished, logit_bias=bias))


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({"top_k": 1}, id="top_k"),
        pytest.param({"min_p": 1}, id="min_p"),
        pytest.param({"top_n_sigma": 1e-6}, id="top_n_sigma"),
    ],
)
async def test_a_field_of_ours_goes_into_extra_body(
    connect: Connect, tiny_server: Program, extra: dict[str, Any]
) -> None:
    """Each leaves the likeliest token alone, whatever the temperature."""
    ai = connect(tiny_server)
    greedy = text_of(await chat(ai, temperature=0, max_tokens=12))
    narrow = HOT | {"extra_body": extra, "max_tokens": 12}
    assert text_of(await chat(ai, **narrow)) == greedy
    tail: Any = {"temperature": 2.0, "max_tokens": 12, "top_p": 1e-9, "extra_body": {"min_p": 0}}
    assert text_of(await chat(ai, **tail)) == greedy


async def test_what_is_not_ours_to_do_is_no_error(connect: Connect, scripted: Program) -> None:
    """Fields of OpenAI's own platform, and such that nobody knows."""
    fields: dict[str, Any] = {
        "service_tier": "auto",
        "store": False,
        "metadata": {"run": "7"},
        "modalities": ["text"],
        "verbosity": "low",
        "prediction": {"type": "content", "content": "hello"},
        "web_search_options": {},
        "safety_identifier": "x",
        "extra_body": {"no_such_field": [1, {"a": None}]},
    }
    assert text_of(await chat(connect(scripted), **fields)) == "hello"


async def test_null_is_the_same_as_absent(connect: Connect, scripted: Program) -> None:
    # The keyword arguments leave null out of what is sent: it is put into the body itself.
    extra: Any = {"extra_body": dict.fromkeys(OPTIONAL)}
    ai = connect(scripted)
    assert text_of(await chat(ai, **extra)) == "hello"
    assert joined(await chunks(ai, **extra)) == "hello"


async def test_the_second_turn_is_cached(connect: Connect, tiny_server: Program) -> None:
    """By the key of whoever asks: nobody else's is touched, and `cache_prompt` keeps out of it."""
    ai, name = connect(tiny_server), uuid4().hex

    async def cached(**fields: Any) -> int:
        answer = await chat(ai, name * 4, max_tokens=4, **fields)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens is not None
        return answer.usage.prompt_tokens_details.cached_tokens

    assert await cached(prompt_cache_key=f"{name}-a") == 0
    assert await cached(prompt_cache_key=f"{name}-a") > len(name)
    assert await cached(user=f"{name}-a") > len(name), "the user is the key where there is none"
    assert await cached(prompt_cache_key=f"{name}-b", user=f"{name}-a") == 0
    assert await cached(user=f"{name}-a", extra_body={"cache_prompt": False}) == 0


async def test_eight_at_once_say_what_each_says_alone(
    connect: Connect, tiny_server: Program
) -> None:
    ai = connect(tiny_server)

    def asked(number: int) -> Any:
        sent = body(f"say {number}", seed=number, **HOT | {"max_tokens": 24})
        return ai.chat.completions.create(**sent)

    alone = [text_of(await settle(asked(number))) for number in range(8)]
    found: list[ChatCompletion] = await together(ai, [partial(asked, n) for n in range(8)])
    assert [text_of(answer) for answer in found] == alone
    assert len({answer.id for answer in found}) == 8


async def test_a_stream_that_is_left_makes_room(connect: Connect, tiny_server: Program) -> None:
    ai = connect(tiny_server)
    for _ in range(6):
        stream = await settle(ai.chat.completions.create(**body(max_tokens=400), stream=True))
        [opening, _] = await first(stream, 2)
        assert opening.choices[0].delta.role == "assistant"
        await settle(stream.close())
    assert text_of(await chat(ai, max_tokens=2, logit_bias=LETTERS)) != ""
    tiny_server.await_health(batch__active_sequences=0, batch__queue_depth=0)


async def test_streams_beside_each_other_keep_apart(connect: Connect, scripted: Program) -> None:
    """Two that are read in turns by one client."""
    ai = connect(scripted)
    texts = ("abcdefgh", "12345678")
    streams = [
        await settle(ai.chat.completions.create(**body(text), stream=True)) for text in texts
    ]
    heads = [await first(stream, 3) for stream in streams]
    tails = [await listed(stream) for stream in streams]
    assert tuple(joined(h + t) for h, t in zip(heads, tails, strict=True)) == texts
