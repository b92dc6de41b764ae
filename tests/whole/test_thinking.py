"""A model that thinks: budgets, primed prompts, and the split, over HTTP and in both forms."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlxcel.text.bytes import BYTE_TEMPLATE
from tests.cases.asking import CHAT, Streamed, assert_error_object, opened, stream
from tests.tiny.checkpoint import FIRST_MARKER, build_tiny_checkpoint
from tests.whole.calls import named, plain, streamed, tool
from tests.whole.program import Program, chat_body, serve_checkpoint
from tests.whole.schemas import assert_valid, forced

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

OPEN, CLOSE = "<think>", "</think>"
PRIMING = """\
{%- if add_generation_prompt and enable_thinking %}{{ "<think>\\n" }}{% endif -%}
"""
LETTERS = {str(byte): 100.0 for byte in b"abcdefghijklmnopqrstuvwxyz"}
"""A `logit_bias`: whatever the model says, it is a letter, and so a token is a character."""
LENGTH = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its template opens the block unless it is told not to think."""
    path = tmp_path_factory.mktemp("thinker") / "thinker"
    template = BYTE_TEMPLATE + PRIMING
    return build_tiny_checkpoint(path, window=2048, markers=(OPEN, CLOSE), template=template)


@pytest.fixture(scope="module")
def thinker(folder: Path) -> Iterator[Program]:
    with Program(*serve_checkpoint(folder)) as program:
        yield program


@pytest.fixture(scope="module")
def capped(folder: Path) -> Iterator[Program]:
    """The server has a budget of its own, and something to say when it is spent."""
    words = ("live.reasoning.budget=3", "generation.reasoning.budget_message=' ENOUGH'")
    with Program(*serve_checkpoint(folder, *words)) as program:
        yield program


@pytest.fixture(scope="module")
def raw(folder: Path) -> Iterator[Program]:
    """Tags stay where they are."""
    with Program(*serve_checkpoint(folder, "generation.reasoning.format=none")) as program:
        yield program


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    reasoning: str | None
    content: str
    reason: str
    tokens: int


def body_of(**fields: Any) -> dict[str, Any]:
    return chat_body("think", max_tokens=LENGTH, logit_bias=LETTERS) | fields


def whole(program: Program, **fields: Any) -> Thought:
    status, answer = program.post(CHAT, body_of(**fields))
    assert status == 200, answer
    choice = answer["choices"][0]
    message = choice["message"]
    assert message.get("reasoning") == message.get("reasoning_content")
    is_all_thought = bool(message.get("reasoning_content")) and not message["content"]
    assert bool(answer.get("reasoning_only")) == is_all_thought
    return Thought(
        reasoning=message.get("reasoning_content"),
        content=message["content"],
        reason=choice["finish_reason"],
        tokens=answer["usage"]["completion_tokens"],
    )


def pieces(program: Program, **fields: Any) -> Thought:
    seen = stream(program, body_of(**fields) | {"stream_options": {"include_usage": True}})
    assert seen.is_done
    (reason,) = seen.reasons
    return Thought(
        reasoning=_reasoning(seen),
        content=seen.text,
        reason=reason,
        tokens=seen.chunks[-1]["usage"]["completion_tokens"],
    )


def _reasoning(seen: Streamed) -> str | None:
    deltas = [choice["delta"] for chunk in seen.chunks for choice in chunk["choices"]]
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert thoughts == [delta["reasoning"] for delta in deltas if "reasoning" in delta]
    return "".join(thoughts) or None


def both(program: Program, **fields: Any) -> Thought:
    """The streamed pieces joined are the whole."""
    answer = whole(program, **fields)
    assert pieces(program, **fields) == answer
    return answer


def test_the_markers_are_told_at_the_start(thinker: Program) -> None:
    assert f"the model thinks between {OPEN} and {CLOSE} (1 and 1 tokens)" in thinker.text


@pytest.mark.parametrize("budget", [1, 3, 10])
@pytest.mark.parametrize("name", ["thinking_budget_tokens", "thinking_token_budget"])
def test_a_budget_closes_the_block(thinker: Program, name: str, budget: int) -> None:
    """N tokens of thought, the marker, and the answer; all of them count."""
    free = both(thinker)
    assert free.reasoning is not None
    answer = both(thinker, **{name: budget})
    assert answer.reasoning == free.reasoning[:budget]
    assert len(answer.content) == LENGTH - budget - 1
    assert (answer.reason, answer.tokens) == ("length", LENGTH)


def test_a_budget_of_nothing_closes_at_once(thinker: Program) -> None:
    answer = both(thinker, thinking_budget=0)
    assert answer.reasoning is None
    assert len(answer.content) == LENGTH - 1
    assert answer.tokens == LENGTH


@pytest.mark.parametrize("fields", [{}, {"thinking_budget_tokens": -1}], ids=["none", "minus-one"])
def test_without_a_budget_it_thinks_to_the_end(thinker: Program, fields: dict[str, Any]) -> None:
    answer = both(thinker, **fields)
    assert answer.reasoning is not None
    assert (len(answer.reasoning), answer.content, answer.reason) == (LENGTH, "", "length")


def test_the_limit_may_come_before_the_marker(thinker: Program) -> None:
    """A budget of all tokens leaves none for the marker."""
    answer = both(thinker, thinking_budget=LENGTH)
    assert answer.reasoning is not None
    assert (len(answer.reasoning), answer.content, answer.reason) == (LENGTH, "", "length")


def test_the_budget_of_the_server_and_its_message(capped: Program) -> None:
    answer = both(capped)
    assert answer.reasoning is not None
    assert answer.reasoning[3:] == " ENOUGH"
    assert len(answer.content) == LENGTH - 3 - len(" ENOUGH") - 1
    assert answer.tokens == LENGTH


@pytest.mark.parametrize(("budget", "thoughts"), [(-1, LENGTH), (5, 5 + len(" ENOUGH"))])
def test_a_request_has_its_own_budget(capped: Program, budget: int, thoughts: int) -> None:
    """-1 lifts the cap of the server."""
    answer = both(capped, thinking_budget_tokens=budget)
    assert answer.reasoning is not None
    assert len(answer.reasoning) == thoughts


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"thinking_budget_tokens": -2}, "must be >= -1", id="below"),
        pytest.param(
            {"thinking_budget": LENGTH + 1}, f"must be <= max_tokens ({LENGTH})", id="above"
        ),
    ],
)
@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
def test_a_budget_out_of_range_is_refused(
    thinker: Program, fields: dict[str, Any], words: str, asked_stream: bool
) -> None:
    with opened(thinker, body_of(stream=asked_stream, **fields)) as response:
        status, answer = response.status, json.loads(response.read())
    assert status == 400
    assert_error_object(answer, param=next(iter(fields)))
    assert words in answer["error"]["message"]


def test_a_template_that_is_told_not_to_think(thinker: Program) -> None:
    answer = both(thinker, chat_template_kwargs={"enable_thinking": False})
    assert answer.reasoning is None
    assert len(answer.content) == LENGTH


def test_a_block_the_model_opens_itself(raw: Program) -> None:
    """Budget 0: `<think></think>`. A later block is not closed again."""
    fields = {
        "chat_template_kwargs": {"enable_thinking": False},
        "logit_bias": {str(FIRST_MARKER): 1000},
        "max_tokens": 5,
        "thinking_budget": 0,
    }
    answer = both(raw, **fields)
    assert answer.content == f"{OPEN}{CLOSE}{OPEN}{OPEN}{OPEN}"
    assert answer.reasoning is None


def test_format_none_keeps_the_closing_tag(raw: Program) -> None:
    answer = both(raw, thinking_budget=4)
    head, _, tail = answer.content.partition(CLOSE)
    assert (len(head), len(tail)) == (4, LENGTH - 5)
    assert answer.reasoning is None


@pytest.mark.parametrize("seed", range(8))
def test_blocks_at_random_are_split_alike_in_both_forms(thinker: Program, seed: int) -> None:
    """Markers and broken characters in any order; a second opening inside a block is a thought."""
    bias = {str(FIRST_MARKER): 7, str(FIRST_MARKER + 1): 7}
    fields = {"logit_bias": bias, "temperature": 1, "seed": seed, "max_tokens": 80}
    answer = both(thinker, **fields)
    assert OPEN not in answer.content
    assert CLOSE not in (answer.reasoning or "")
    assert answer.reasoning
    assert answer.content


def test_a_stop_inside_the_block_ends_the_answer(thinker: Program) -> None:
    thoughts = whole(thinker).reasoning
    assert thoughts is not None
    stop = thoughts[4:6]
    answer = both(thinker, stop=[stop])
    assert answer.reasoning == thoughts[: thoughts.index(stop)]
    assert (answer.content, answer.reason) == ("", "stop")


def test_a_schema_binds_the_answer_and_not_the_thoughts(thinker: Program) -> None:
    form = forced("ab")
    answer = both(thinker, response_format=form, thinking_budget=6, max_tokens=60)
    assert answer.reasoning is not None
    assert len(answer.reasoning) == 6
    assert_valid(form["json_schema"]["schema"], answer.content)
    assert answer.reason == "stop"


def test_a_forced_call_comes_after_the_thoughts(thinker: Program) -> None:
    parameters = forced("ab")["json_schema"]["schema"]
    fields = {"tools": [tool("f", parameters)], "tool_choice": named("f"), "max_tokens": 120}
    asked = body_of(**fields, thinking_budget=6)
    spoken = plain(thinker, asked)
    assert spoken.reason == "tool_calls"
    assert spoken.calls == (("f", '{"t":"ab"}'),)
    assert streamed(thinker, asked) == spoken
