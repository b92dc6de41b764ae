"""The second turn of a conversation finds what was read and said in the first, in every dialect,
whichever form the answers have: on a random model that thinks."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.agents.agent import Agent, Json, events, post
from tests.whole.agents.chat import ChatAgent
from tests.whole.agents.messages import MessagesAgent
from tests.whole.agents.record import ROOT
from tests.whole.agents.responses import ResponsesAgent
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

SYSTEM = "Be brief, and name your sources. " * 4
BUDGET = 5
SAYS = 64
STEP = 32
"""What is found is cut to whole steps of prefill."""
LETTERS = ", ".join(f"[{byte}, 100.0]" for byte in b"abcdefghijklmnopqrstuvwxyz")
"""What the model says is text then, and reads as the tokens it was made of."""
PRIMING = "{%- if add_generation_prompt %}{{ '<think>' }}{% endif -%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    prompt: int
    cached: int
    said: int


class Chat:
    agent: Agent = ChatAgent(stream=True)

    def first(self, text: str, session: str | None) -> Json:
        turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        more = {"stream_options": {"include_usage": True}, "thinking_budget_tokens": BUDGET}
        named = {} if session is None else {"prompt_cache_key": session}
        return {"model": "any", "max_tokens": SAYS, "messages": turns} | more | named

    def then(self, body: Json, answer: Json, text: str) -> Json:
        said = answer["choices"][0]["message"]
        assert said["reasoning_content"]
        asked = {"role": "user", "content": text}
        return body | {"messages": [*body["messages"], said, asked]}

    def usage(self, found: Json) -> Usage:
        told = found["usage"]
        cached = told["prompt_tokens_details"]["cached_tokens"]
        return Usage(prompt=told["prompt_tokens"], cached=cached, said=told["completion_tokens"])


class Messages:
    agent: Agent = MessagesAgent(stream=True)

    def first(self, text: str, session: str | None) -> Json:
        thinking = {"type": "enabled", "budget_tokens": BUDGET}
        turns = [{"role": "user", "content": text}]
        named = {} if session is None else {"metadata": {"user_id": session}}
        more = {"system": SYSTEM, "messages": turns, "thinking": thinking}
        return {"model": "any", "max_tokens": SAYS} | more | named

    def then(self, body: Json, answer: Json, text: str) -> Json:
        assert answer["content"][0]["thinking"]
        said = {"role": "assistant", "content": answer["content"]}
        asked = {"role": "user", "content": text}
        return body | {"messages": [*body["messages"], said, asked]}

    def usage(self, found: Json) -> Usage:
        told = found["usage"]
        cached = told["cache_read_input_tokens"]
        return Usage(
            prompt=told["input_tokens"] + cached, cached=cached, said=told["output_tokens"]
        )


class Responses:
    agent: Agent = ResponsesAgent(stream=True)

    def first(self, text: str, session: str | None) -> Json:
        more = {"instructions": SYSTEM, "thinking_budget_tokens": BUDGET}
        named = {} if session is None else {"prompt_cache_key": session}
        turns = [{"role": "user", "content": text}]
        return {"model": "any", "max_output_tokens": SAYS, "input": turns} | more | named

    def then(self, body: Json, answer: Json, text: str) -> Json:
        assert answer["output"][0]["content"]
        asked = {"role": "user", "content": text}
        return body | {"input": [*body["input"], *answer["output"], asked]}

    def usage(self, found: Json) -> Usage:
        told = found["usage"]
        cached = told["input_tokens_details"]["cached_tokens"]
        return Usage(prompt=told["input_tokens"], cached=cached, said=told["output_tokens"])


class Kept(Responses):
    """By id: thoughts are not told again, and put back by the server (docs/caching.md)."""

    def then(self, body: Json, answer: Json, text: str) -> Json:
        return body | {"previous_response_id": answer["id"], "input": text}


DIALECTS: dict[str, Any] = {
    "chat": Chat(),
    "messages": Messages(),
    "responses": Responses(),
    "responses-by-id": Kept(),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("second") / "second"
    template = (ROOT / "template.jinja").read_text("utf-8") + PRIMING
    build_tiny_checkpoint(folder, window=2048, markers=("<think>", "</think>"), template=template)
    words = (f"generation.sampling.logit_bias=[{LETTERS}]", "live.sampling.temperature=0")
    with Program(*serve_checkpoint(folder, *words)) as running:
        yield running


def ask(program: Program, dialect: Any, body: Json, *, stream: bool) -> tuple[Json, Usage]:
    """An answer as an agent has it, and what it cost."""
    raw = post(program.url, dialect.agent.path, body | {"stream": stream})
    if not stream:
        whole = json.loads(raw)
        return whole, dialect.usage(whole)
    told = events(raw)
    if dialect.agent.path == "/v1/responses":
        last = told[-1]["response"]
    else:
        last = next(event for event in reversed(told) if event.get("usage"))
    return dialect.agent.whole(told), dialect.usage(last)


def assert_found(first: Usage, second: Usage) -> None:
    """All that was read: the first prompt, and the answer but for the token that was said last."""
    known = first.prompt + first.said - 1
    assert second.cached >= known // STEP * STEP
    assert first.prompt < second.cached < second.prompt


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("name", DIALECTS)
def test_second_turn_finds_the_first(program: Program, name: str, stream: bool) -> None:
    dialect = DIALECTS[name]
    body = dialect.first("What is new?", f"{name} {stream}")
    answer, first = ask(program, dialect, body, stream=stream)
    assert first.cached == 0
    body = dialect.then(body, answer, "And what else is new in the world?")
    _, second = ask(program, dialect, body, stream=stream)
    assert_found(first, second)


@pytest.mark.parametrize("name", ["chat", "messages", "responses"])
def test_whoever_goes_on_in_another_dialect_finds_it_too(program: Program, name: str) -> None:
    """Without a name they are one session."""
    text, begun = f"Who began with {name}?", DIALECTS[name]
    answer, first = ask(program, begun, begun.first(text, None), stream=False)
    thought, said = _parts(name, answer)
    for other in ("chat", "messages", "responses"):
        dialect = DIALECTS[other]
        body = dialect.then(dialect.first(text, None), _as(other, thought, said), f"By {other}.")
        _, second = ask(program, dialect, body, stream=False)
        assert_found(first, second)


def _parts(name: str, answer: Json) -> tuple[str, str]:
    match name:
        case "chat":
            message = answer["choices"][0]["message"]
            return message["reasoning_content"], message["content"]
        case "messages":
            thought, said = answer["content"]
            return thought["thinking"], said["text"]
    thought, said = answer["output"]
    return thought["content"][0]["text"], said["content"][0]["text"]


def _as(name: str, thought: str, said: str) -> Json:
    match name:
        case "chat":
            message = {"role": "assistant", "reasoning_content": thought, "content": said}
            return {"choices": [{"message": message}]}
        case "messages":
            first = {"type": "thinking", "thinking": thought, "signature": ""}
            return {"content": [first, {"type": "text", "text": said}]}
    kept = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": thought}]}
    return {"output": [kept, {"type": "message", "role": "assistant", "content": said}]}
