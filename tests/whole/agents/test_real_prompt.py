"""One conversation of an agent, by the tokenizer and the template of the default model: the same
tokens in every dialect, and as many as the server counts."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.options import ChatOptions
from mlxcel.text.template import ChatTemplate
from mlxcel.text.tokenizer import read_text_model
from tests.generation.dialects import Answer, Call, Conversation, Style, Tool
from tests.generation.test_same_prompt import CODECS, read, worded
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

COUNTS = {
    "chat": "/v1/chat/completions/input_tokens",
    "messages": "/v1/messages/count_tokens",
    "responses": "/v1/responses/input_tokens",
}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOLD = Conversation(
    system="You are a coding agent.\nBe brief.",
    tools=[
        Tool(name="read_file", description="Reads a file.", parameters=PATH),
        Tool(name="run_tests", description=None, parameters=NOTHING),
    ],
    turns=[
        "The test of größe.py fails.\nPlease mend it.",
        Answer(
            reasoning="First the file.\nThen the tests.",
            text="I will look.",
            calls=[
                Call(id="c1", name="read_file", arguments={"path": "größe.py"}, result="a\n  b"),
                Call(id="c2", name="run_tests", arguments={}, result="1 failed"),
            ],
        ),
        Answer(calls=[Call(id="c3", name="run_tests", arguments={}, result="1 passed ✓")]),
        Answer(text="Mended."),
        "Thanks! What was it?",
    ],
)
STYLES = [Style(), Style(in_parts=True, is_sealed=True, calls_first=True, strict={"strict": False})]


@pytest.fixture(scope="module")
def model(smollm2: Program, model_cache: Path) -> ChatModel:
    """As the server has it, which has put it there."""
    text = read_text_model(model_cache / "models" / "SmolLM2-135M-Instruct")
    assert text.chat_template is not None
    template = ChatTemplate(
        text.chat_template, origin="SmolLM2", special_tokens=text.special_tokens
    )
    return ChatModel.of(text, template, ChatOptions(caches=True))


@pytest.mark.parametrize("style", STYLES, ids=["plain", "in-parts"])
def test_each_dialect_is_the_same_tokens(smollm2: Program, model: ChatModel, style: Style) -> None:
    bodies = {name: write(TOLD, style) for name, (_, write) in CODECS.items()}
    ids = {name: worded(read(CODECS[name][0], bodies[name]).request, model).ids for name in CODECS}
    assert ids["messages"] == ids["chat"]
    assert ids["responses"] == ids["chat"]
    for name, path in COUNTS.items():
        status, counted = smollm2.post(path, bodies[name])
        assert (status, counted["input_tokens"]) == (200, len(ids["chat"])), name
