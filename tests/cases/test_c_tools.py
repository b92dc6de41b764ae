"""Public faults, family C: tool calls."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.asking import stream
from tests.whole.calls import Spoken, named, plain, streamed, tool
from tests.whole.other_calls import OTHERS, parsed
from tests.whole.program import Program, chat_body

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
    },
}
TOOLS = [tool("weather", PARAMETERS), tool("other", {})]
ARGUMENTS = {"city": "Oslo <b>é</b>", "days": 3, "exact": True}
CALL = json.dumps({"name": "weather", "arguments": ARGUMENTS}, ensure_ascii=False)
TURNS = """\
{%- for message in messages -%}
{{ "<|" ~ message.role ~ "|>" ~ message.content ~ "<|end|>" }}
{%- endfor -%}
{#- tools: {{ tools }} EVIDENCE -#}
<|assistant|>
"""
"""The scripted engine speaks bytes; what form its calls have is told by the evidence."""

FAMILIES = {
    "json_tools": (
        "<tool_call> tool_call.name",
        f"<tool_call>\n{CALL}\n</tool_call>",
        '<tool_call>\n{"name": "weather", "arguments": {"city": }\n</tool_call>',
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=",
        "<tool_call>\n<function=weather>\n<parameter=city>\nOslo <b>é</b>\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n<parameter=exact>\ntrue\n</parameter>\n"
        "</function>\n</tool_call>",
        "<tool_call>\n<function weather\n</tool_call>",
    ),
    "glm47": (
        "<arg_key>",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo <b>é</b></arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
        "<arg_key>exact</arg_key>\n<arg_value>true</arg_value>\n</tool_call>",
        "<tool_call></tool_call>",
    ),
    "mistral": (
        "[TOOL_CALLS]",
        f"[TOOL_CALLS][{CALL}]",
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city"}]',
    ),
}
"""Evidence in the template, a whole call, a broken one."""


def script(family: str) -> list[dict[str, str]]:
    """By the first word of a message: a forced choice adds an instruction behind it."""
    _, whole, broken = FAMILIES[family]
    return [
        {"when": "^broken\\b", "say": broken},
        {"when": "^text\\b", "say": f"I look.\n{whole}"},
        {"when": "^twice\\b", "say": f"{whole}\n{whole}" if family != "mistral" else whole},
        {"when": "^undeclared\\b", "say": whole.replace("weather", "nowhere")},
        {"when": "^almost\\b", "say": "a < b, <tool, [TOOL and <|"},
        {"when": "^whole\\b", "say": whole},
    ]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture(scope="module")
def scripted(family: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder: Path = tmp_path_factory.mktemp(family)
    template = folder / "turns.jinja"
    template.write_text(TURNS.replace("EVIDENCE", FAMILIES[family][0]), encoding="utf-8")
    recipe = folder / "recipe.yaml"
    parts = {
        "defaults": [{"override /model": "echo"}],
        "engine": {"script": script(family)},
        "generation": {"chat_template": {"file": str(template)}},
    }
    recipe.write_text(f"# @package _global_\n{json.dumps(parts)}", encoding="utf-8")
    with Program("--recipe", str(recipe)) as program:
        yield program


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return chat_body(text, max_tokens=500, tools=TOOLS) | fields


READERS = pytest.mark.parametrize("read", [plain, streamed], ids=["plain", "stream"])
Reader = Callable[[Program, dict[str, Any]], Spoken]


@READERS
def test_c2_no_delta_holds_markup(scripted: Program, read: Reader) -> None:
    """C2: streamed calls came out as raw markup in `content`.

    https://github.com/waybarrios/vllm-mlx/issues/107
    """
    spoken = read(scripted, asked("whole"))
    assert (spoken.content, spoken.reason) == (None, "tool_calls")
    ((name, arguments),) = spoken.calls
    assert (name, json.loads(arguments)) == ("weather", ARGUMENTS)


def test_c2_text_before_a_call_is_all_that_is_content(scripted: Program) -> None:
    """C2: at no moment does a delta show the beginning of a marker."""
    seen = stream(scripted, asked("text"))
    assert seen.text == "I look."
    shown = "".join(seen.deltas)
    assert "I look.".startswith(shown)
    assert plain(scripted, asked("text")) == streamed(scripted, asked("text"))


@READERS
def test_c2_text_that_looks_like_a_marker_comes_out_whole(scripted: Program, read: Reader) -> None:
    """C2: what was held back and is no marker is content after all."""
    spoken = read(scripted, asked("almost"))
    assert spoken == Spoken(content="a < b, <tool, [TOOL and <|", calls=(), reason="stop")


@READERS
@pytest.mark.parametrize(
    ("text", "fields", "reason"),
    [
        pytest.param("whole", {}, "tool_calls", id="called"),
        pytest.param("whole", {"tool_choice": "auto"}, "tool_calls", id="called-on-auto"),
        pytest.param("whole", {"tool_choice": named("weather")}, "tool_calls", id="named"),
        pytest.param("whole", {"tool_choice": named("other")}, "stop", id="named-another"),
        pytest.param("undeclared", {}, "stop", id="not-declared"),
        pytest.param("plain words", {}, "stop", id="no-call"),
        pytest.param("plain words", {"tool_choice": "required"}, "stop", id="forced-in-vain"),
        pytest.param("plain words", {"max_tokens": 3}, "length", id="cut"),
        pytest.param("whole", {"tool_choice": "none"}, "stop", id="switched-off"),
        pytest.param("whole", {"tools": None}, "stop", id="no-tools"),
    ],
)
def test_c4_the_reason_is_tool_calls_when_and_only_when_there_are_some(
    scripted: Program, read: Reader, text: str, fields: dict[str, Any], reason: str
) -> None:
    """C4: `stop` was reported although a tool was called.

    https://github.com/Blaizzy/mlx-vlm/pull/964
    """
    spoken = read(scripted, asked(text, **fields))
    assert spoken.reason == reason
    assert bool(spoken.calls) == (reason == "tool_calls")


@READERS
def test_c6_broken_markup_is_content(scripted: Program, family: str, read: Reader) -> None:
    """C6: a family's own call syntax crashed the request; broken, it is what the model said.

    https://github.com/ml-explore/mlx-lm/issues/607
    """
    spoken = read(scripted, asked("broken"))
    assert spoken == Spoken(content=FAMILIES[family][2], calls=(), reason="stop")


@READERS
def test_c6_several_calls_keep_their_order(scripted: Program, family: str, read: Reader) -> None:
    """C6: the same in a row of calls."""
    spoken = read(scripted, asked("twice"))
    assert [name for name, _ in spoken.calls] == ["weather"] * (1 if family == "mistral" else 2)
    assert all(json.loads(arguments) == ARGUMENTS for _, arguments in spoken.calls)


@READERS
def test_c6_a_call_cut_by_the_limit(scripted: Program, family: str, read: Reader) -> None:
    """C6: half a call is content with reason `length`, and no half of it is a call."""
    spoken = read(scripted, asked("whole", max_tokens=24))
    whole = FAMILIES[family][1]
    assert spoken == Spoken(content=whole.encode()[:24].decode(), calls=(), reason="length")


ASKED: list[tuple[str, dict[str, Any]]] = [
    *((text, {}) for text in ("whole", "text", "twice", "almost", "broken", "undeclared")),
    *(("whole", {"tool_choice": choice}) for choice in ("auto", "none", named("weather"))),
    ("whole", {"tool_choice": named("other")}),
    ("whole", {"max_tokens": 24}),
    ("whole", {"tools": None}),
    ("plain words", {"tool_choice": "required"}),
    ("plain words", {"max_tokens": 3}),
]


def test_c_every_dialect_says_the_same(scripted: Program) -> None:
    """C2, C4 and C6 on the routes beside chat: no markup as text, `tool_use` when and only when
    there are calls, and broken markup is what the model said; plain and streamed."""
    for text, fields in ASKED:
        body = asked(text, **fields)
        expected = parsed(plain(scripted, body))
        found = {read.__name__: parsed(read(scripted, body)) for read in OTHERS}
        assert found == dict.fromkeys(found, expected), (text, fields)
