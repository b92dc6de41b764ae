"""Text completions, the older route, through the official client."""

from typing import Any

import openai
import pytest
from openai.types import Completion

from tests.whole.program import Program
from tests.whole.scenarios.asking import complete, listed, refused, settle
from tests.whole.scenarios.conftest import Connect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

LETTERS = {str(byte): 100 for byte in range(ord("a"), ord("z") + 1)}
HOT: dict[str, Any] = {"temperature": 2.0, "max_tokens": 8, "logit_bias": LETTERS}


async def pieces(connect: Connect, program: Program, prompt: Any, **fields: Any) -> list[Any]:
    """A stream, whose chunks are whole completions in shape."""
    ai = connect(program)
    sent: Any = {"model": "any", "prompt": prompt, "stream": True} | fields
    found = await listed(await settle(ai.completions.create(**sent)))
    assert all(isinstance(chunk, Completion) for chunk in found)
    assert {chunk.object for chunk in found} == {"text_completion"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in found}) == 1
    return found


def joined(found: list[Any], choice: int = 0) -> str:
    mine = (each for chunk in found for each in chunk.choices if each.index == choice)
    return "".join(each.text for each in mine)


async def test_a_text_is_continued(connect: Connect, scripted: Program) -> None:
    answer = await complete(connect(scripted), "hello")
    [choice] = answer.choices
    assert (choice.text, choice.finish_reason, choice.logprobs) == ("hello", "stop", None)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    found = await pieces(connect, scripted, "hello", stream_options={"include_usage": True})
    assert joined(found) == "hello"
    assert [each.finish_reason for chunk in found for each in chunk.choices][-1] == "stop"
    assert (found[-1].choices, found[-1].usage) == ([], answer.usage)


@pytest.mark.slow
async def test_a_real_model_goes_on(connect: Connect, smollm2: Program) -> None:
    prompt, fields = "The capital of France is", {"temperature": 0, "max_tokens": 3}
    answer = await complete(connect(smollm2), prompt, **fields)
    assert "Paris" in answer.choices[0].text
    assert joined(await pieces(connect, smollm2, prompt, **fields)) == answer.choices[0].text


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(["one", "two", "three"], id="texts"),
        pytest.param([list(b"one"), list(b"two"), list(b"three")], id="lists-of-tokens"),
    ],
)
async def test_each_prompt_has_its_choices(
    connect: Connect, scripted: Program, prompt: list[Any]
) -> None:
    ai = connect(scripted)
    answer = await complete(ai, prompt)
    assert [choice.text for choice in answer.choices] == ["one", "two", "three"]
    twice = await complete(ai, prompt, n=2)
    assert [choice.text for choice in twice.choices] == ["one"] * 2 + ["two"] * 2 + ["three"] * 2
    found = await pieces(connect, scripted, prompt)
    assert [joined(found, choice) for choice in range(3)] == ["one", "two", "three"]


async def test_tokens_are_a_prompt(connect: Connect, scripted: Program) -> None:
    answer = await complete(connect(scripted), list(b"tokens"))
    assert answer.choices[0].text == "tokens"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("tokens")


async def test_the_prompt_is_told_again(connect: Connect, scripted: Program) -> None:
    answer = await complete(connect(scripted), "say", echo=True)
    assert answer.choices[0].text == "saysay"
    assert joined(await pieces(connect, scripted, "say", echo=True)) == "saysay"


async def test_how_likely_a_given_text_is(connect: Connect, tiny_server: Program) -> None:
    """Nothing is said: what evaluation tools ask for."""
    answer = await complete(
        connect(tiny_server), "likely", echo=True, logprobs=2, max_tokens=0, temperature=0
    )
    [choice] = answer.choices
    assert (choice.text, choice.finish_reason) == ("likely", "length")
    assert choice.logprobs is not None
    found = choice.logprobs
    assert found.token_logprobs is not None
    assert found.tokens is not None
    assert found.text_offset is not None
    assert found.top_logprobs is not None
    assert "".join(found.tokens[-6:]) == "likely"
    assert found.token_logprobs[0] is None
    assert all(value <= 0 for value in found.token_logprobs[1:])
    assert found.text_offset == sorted(found.text_offset)
    lengths = {len(found.tokens), len(found.token_logprobs), len(found.text_offset)}
    assert lengths == {len(found.top_logprobs)}
    assert found.top_logprobs[0] is None
    assert all(2 <= len(best) <= 3 for best in found.top_logprobs[1:])


async def test_how_likely_each_token_was(connect: Connect, tiny_server: Program) -> None:
    fields = HOT | {"seed": 4, "logprobs": 0}
    answer = await complete(connect(tiny_server), "likely", **fields)
    [choice] = answer.choices
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens or ()) == choice.text
    found = await pieces(connect, tiny_server, "likely", **fields)
    said = [each.logprobs for chunk in found for each in chunk.choices if each.logprobs]
    assert [token for some in said for token in some.tokens] == choice.logprobs.tokens
    assert [at for some in said for at in some.text_offset] == choice.logprobs.text_offset


async def test_several_choices_and_a_seed(connect: Connect, tiny_server: Program) -> None:
    ai = connect(tiny_server)
    answer = await complete(ai, "several", n=3, seed=9, **HOT)
    texts = [choice.text for choice in answer.choices]
    assert len(set(texts)) == 3
    again = await complete(ai, "several", n=3, seed=9, **HOT)
    assert [choice.text for choice in again.choices] == texts
    found = await pieces(connect, tiny_server, "several", n=3, seed=9, **HOT)
    assert [joined(found, choice) for choice in range(3)] == texts


async def test_a_stop_and_a_limit(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    stopped = await complete(ai, "hello world", stop=["lo"])
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("hel", "stop")
    cut = await complete(ai, "hello world", max_tokens=4)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("hell", "length")


async def test_a_form_binds_here_too(connect: Connect, tiny_server: Program) -> None:
    schema = {"type": "object", "properties": {"k": {"enum": ["x"]}}, "required": ["k"]}
    asked = {
        "type": "json_schema",
        "json_schema": {"schema": schema | {"additionalProperties": False}},
    }
    answer = await complete(
        connect(tiny_server), "form", max_tokens=99, extra_body={"response_format": asked}
    )
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ('{"k":"x"}', "stop")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"prompt": "   "}, "prompt", id="blank"),
        pytest.param({"prompt": []}, "prompt", id="none"),
        pytest.param({"prompt": ["a", [1]]}, "prompt[1]", id="mixed"),
        pytest.param({"prompt": [[-1]]}, "prompt[0][0]", id="no-token"),
        pytest.param({"logprobs": 6}, "logprobs", id="six-alternatives"),
        pytest.param({"n": 9}, "n", id="nine-choices"),
        pytest.param({"echo": "yes"}, "echo", id="echo"),
    ],
)
async def test_a_wrong_field_is_a_bad_request(
    connect: Connect, scripted: Program, fields: dict[str, Any], param: str
) -> None:
    ai = connect(scripted)
    for stream in (False, True):
        sent: Any = {"model": "any", "prompt": "hi", "stream": stream} | fields
        error = await refused(openai.BadRequestError, ai.completions.create, **sent)
        assert (error.param, error.type) == (param, "invalid_request_error")
