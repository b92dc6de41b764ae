"""npm's clients read our streams: thoughts, words and a call, as their helpers put them together.

Each runs in Node; what it tells is compared whole. A complaint on stderr is a failure.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.whole import npm
from tests.whole.program import Program

pytestmark = [pytest.mark.whole, pytest.mark.slow]

THOUGHT, WORDS, ARGUMENTS = "Oslo it is.", "One moment.", '{"city":"Oslo"}'
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
ASKED = f"<think>{THOUGHT}</think>{WORDS} {CALL}"
LATER, ANSWER = "Rain.", "It rains in Oslo."
TOLD = f"<think>{LATER}</think>{ANSWER}"
SCRIPT = {"^weather": ASKED, "^rain in Oslo$": TOLD}
"""The second line is for the result of the tool: a client that loses it hears the first again."""
TEMPLATE = """\
{%- for message in messages -%}
{{ "<|" ~ message.role ~ "|>" }}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif -%}
{{ message.content }}
{%- if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif -%}
{{ "<|end|>" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<|assistant|>" }}{% endif -%}
"""


@pytest.fixture(scope="session")
def packages(model_cache: Path) -> Path:
    return npm.installed(model_cache)


@pytest.fixture(scope="module")
def scripts(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm.lay_out(packages, tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Its template writes the markers of thoughts, so they are told apart."""
    template = tmp_path_factory.mktemp("template") / "thinking.jinja"
    template.write_text(TEMPLATE)
    lines = ", ".join(f"{{when: '{when}', say: '{say}'}}" for when, say in SCRIPT.items())
    words = (f"engine.script=[{lines}]", f"generation.chat_template.file={template}")
    with Program("model=echo", *words) as program:
        yield program


def test_openai_reads_a_chat(scripts: Path, thinking: Program) -> None:
    told = npm.run(scripts, "openai_chat.mjs", thinking.url)
    assert _counted(told.pop("usage"), "prompt_tokens", "completion_tokens") == len(ASKED)
    assert told == {
        "events": [
            "content.delta",
            "content.done",
            "tool_calls.function.arguments.delta",
            "tool_calls.function.arguments.done",
        ],
        "reasoning": THOUGHT,
        "text": WORDS,
        "calls": [
            {
                "type": "function",
                "hasId": True,
                "name": "weather",
                "arguments": ARGUMENTS,
                "parsed": {"city": "Oslo"},
            }
        ],
        "finish": "tool_calls",
    }


def test_openai_reads_a_response(scripts: Path, thinking: Program) -> None:
    told = npm.run(scripts, "openai_responses.mjs", thinking.url)
    usage = told.pop("usage")
    assert _counted(usage, "input_tokens", "output_tokens") == len(ASKED)
    assert usage["output_tokens_details"] == {"reasoning_tokens": len(THOUGHT)}
    assert told == {
        "events": [
            f"response.{name}"
            for name in (
                *("created", "in_progress"),
                *("output_item.added", "reasoning_text.delta", "reasoning_text.done"),
                *("output_item.done", "output_item.added", "content_part.added"),
                *("output_text.delta", "output_text.done", "content_part.done"),
                *("output_item.done", "output_item.added"),
                *("function_call_arguments.delta", "function_call_arguments.done"),
                *("output_item.done", "completed"),
            )
        ],
        "inSequence": True,
        "heard": {"reasoning": THOUGHT, "text": WORDS, "arguments": ARGUMENTS},
        "ended": [THOUGHT, WORDS, ARGUMENTS],
        "output": [
            ["reasoning", "completed"],
            ["message", "completed"],
            ["function_call", "completed"],
        ],
        "reasoning": [{"type": "reasoning_text", "text": THOUGHT}],
        "text": WORDS,
        "role": "assistant",
        "call": {
            "hasId": True,
            "name": "weather",
            "arguments": ARGUMENTS,
            "parsed": {"city": "Oslo"},
        },
        "finish": "completed",
    }


def test_anthropic_reads_a_message(scripts: Path, thinking: Program) -> None:
    told = npm.run(scripts, "anthropic_messages.mjs", thinking.url)
    usage = told.pop("usage")
    assert usage.pop("input_tokens") > 0
    assert usage == {
        "output_tokens": len(ASKED),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    assert told == {
        "events": [
            "message_start",
            *("content_block_start", "thinking_delta", "signature_delta", "content_block_stop"),
            *("content_block_start", "text_delta", "content_block_stop"),
            *("content_block_start", "input_json_delta", "content_block_stop"),
            *("message_delta", "message_stop"),
        ],
        "heard": {"thinking": THOUGHT, "text": WORDS, "json": ARGUMENTS},
        "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": ""},
            {"type": "text", "text": WORDS},
            {"type": "tool_use", "hasId": True, "name": "weather", "input": {"city": "Oslo"}},
        ],
        "role": "assistant",
        "finish": "tool_use",
    }


@pytest.fixture(scope="module")
def ai_sdk(scripts: Path, thinking: Program) -> dict[str, Any]:
    """What it reads with each provider; in one process, since it takes half a second to load."""
    told = npm.run(scripts, "ai_sdk.mjs", thinking.url)
    assert isinstance(told, dict)
    return told


HEARD = ("reasoning-start", "reasoning-delta", "reasoning-end")
UNHEARD = ("reasoning-start", "reasoning-end")
SPOKEN = ("text-start", "text-delta", "text-end")
APART = (*SPOKEN, "tool-input-start", "tool-input-delta", "tool-input-end")
ACROSS = (*SPOKEN[:2], "tool-input-start", "tool-input-delta", "text-end", "tool-input-end")
"""Chunks of a chat do not say where the text ends."""


@pytest.mark.parametrize(
    ("provider", "opening", "middle", "thoughts", "counts"),
    [
        # OpenAI's provider shows summaries alone, which it has to ask for.
        pytest.param("responses", UNHEARD, APART, ("", ""), True, id="responses"),
        pytest.param("stateless", HEARD, APART, (THOUGHT, LATER), True, id="responses-not-kept"),
        pytest.param("chat", (), ACROSS, (None, None), False, id="chat"),
        pytest.param("compatible", HEARD, ACROSS, (THOUGHT, LATER), False, id="compatible"),
        pytest.param("anthropic", HEARD, APART, (THOUGHT, LATER), False, id="anthropic"),
    ],
)
def test_the_ai_sdk_calls_and_goes_on(
    ai_sdk: dict[str, Any],
    provider: str,
    opening: tuple[str, ...],
    middle: tuple[str, ...],
    thoughts: tuple[str | None, str | None],
    counts: bool,
) -> None:
    told = dict(ai_sdk[provider])
    steps = told.pop("steps")
    read = [_counted(step, "input", "output", "total") for step in steps]
    assert read == [len(ASKED), len(TOLD)]
    if counts:
        assert [step["thought"] for step in steps] == [len(THOUGHT), len(LATER)]
    assert told == {
        "parts": [
            *("start", "start-step", *opening, *middle, "tool-call", "tool-result"),
            *("finish-step", "start-step", *opening, *SPOKEN, "finish-step", "finish"),
        ],
        "errors": [],
        "ran": [{"city": "Oslo"}],
    }
    numbers = ("input", "output", "total", "thought")
    assert [{k: v for k, v in step.items() if k not in numbers} for step in steps] == [
        {
            "reasoning": thoughts[0],
            "text": WORDS,
            "calls": [["weather", {"city": "Oslo"}]],
            "results": ["rain in Oslo"],
            "finish": "tool-calls",
            "warnings": [],
        },
        {
            "reasoning": thoughts[1],
            "text": ANSWER,
            "calls": [],
            "results": [],
            "finish": "stop",
            "warnings": [],
        },
    ]


def test_thoughts_come_back_by_reference_or_sealed(ai_sdk: dict[str, Any]) -> None:
    kept, sealed = (ai_sdk[name]["steps"][1]["input"] for name in ("responses", "stateless"))
    assert kept == sealed


def _counted(usage: dict[str, Any], read: str, said: str, total: str = "total_tokens") -> int:
    """What was said, in tokens, if the numbers add up."""
    assert usage[read] > 0
    assert usage[total] == usage[read] + usage[said]
    count = usage[said]
    assert isinstance(count, int)
    return count
