"""Tool calls on a random model: a forced one is valid whatever its schema, streamed and not; a
call that nobody forced is not made up."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mlxcel.generation.schema_checks import SchemaRefused
from mlxcel.generation.structured import enforceable
from tests.cases.asking import CHAT, assert_error_object, assert_serves, await_idle
from tests.engine.schemas import Schema, schemas
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.calls import Spoken, named, plain, streamed, tool
from tests.whole.program import Program, chat_body, serve_checkpoint
from tests.whole.schemas import assert_valid
from tests.whole.test_openai_sdk import sdk

pytestmark = pytest.mark.slow

COUNT = 100
THREADS = 8
WITHIN_S = 120.0
SHORT = {str(byte): 14.0 for byte in "]},@bé".encode()} | {str(ord('"')): 17.0, str(ord("7")): 13.0}
"""A `logit_bias` for closing what is open, strings first, and for what some patterns wait for: all
calls have to come to their end."""

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2, 7]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
COUNTER = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 40}},
    "required": ["n"],
    "additionalProperties": False,
}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "label": {"type": "string", "maxLength": 3},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
            },
            "required": ["label"],
            "additionalProperties": False,
        }
    },
}
"""As libraries write a class that holds itself: the root is a reference."""
TOOLS = {"weather": WEATHER, "größe 1": COUNTER, "tree": TREE, "nothing": {}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = build_tiny_checkpoint(tmp_path_factory.mktemp("wide") / "tiny-wide", window=4096)
    with Program(*serve_checkpoint(folder)) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_stays_behind(program: Program) -> Iterator[None]:
    yield
    health = await_idle(program, 5.0)
    assert (health["status"], health["worker"]["restarts"]) == ("ok", 0)
    assert_serves(program)


def body(number: int, choice: Any, tools: dict[str, Schema], **fields: Any) -> dict[str, Any]:
    return chat_body(
        f"call {number}",
        max_tokens=1500,
        seed=number,
        logit_bias=SHORT,
        tools=[tool(name, parameters) for name, parameters in tools.items()],
        tool_choice=choice,
    ) | {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, **fields}


def arguments_schemas(count: int) -> list[Schema]:
    """Of every kind: what is no object becomes the property of one. Those that can be kept."""
    found: list[Schema] = []
    for case in schemas(3 * count, seed=7):
        schema = case.schema
        if schema.get("type") != "object" and "$ref" not in schema:
            schema = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
        try:
            enforceable(schema)
        except SchemaRefused:
            continue
        found.append(schema)
    return found[:count]


def assert_called(spoken: Spoken, tools: dict[str, Schema]) -> None:
    """Nothing but calls, each of a tool that is there and valid by its schema."""
    assert (spoken.reason, spoken.content) == ("tool_calls", None), spoken
    assert spoken.calls
    for name, arguments in spoken.calls:
        assert isinstance(assert_valid(tools[name], arguments), dict)


def all_of(ask: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(ask, range(count), timeout=WITHIN_S))


@pytest.mark.parametrize("read", [plain, streamed], ids=["plain", "stream"])
def test_a_forced_call_is_valid_100_times_of_100(
    program: Program, read: Callable[..., Spoken], forced_once: dict[int, Spoken]
) -> None:
    found = arguments_schemas(COUNT)
    assert len(found) == COUNT

    def ask(number: int) -> Spoken:
        return read(program, body(number, named("f"), {"f": found[number]}))

    for number, spoken in enumerate(all_of(ask, COUNT)):
        assert_called(spoken, {"f": found[number]})
        assert len(spoken.calls) == 1
        # The same seed is the same call, whichever form came first.
        assert forced_once.setdefault(number, spoken) == spoken


@pytest.fixture(scope="module")
def forced_once() -> dict[int, Spoken]:
    """What the other form of the same request was answered, by its number."""
    return {}


def test_required_makes_a_call_of_one_of_the_tools(program: Program) -> None:
    def ask(number: int) -> tuple[Spoken, Spoken]:
        asked = body(number, "required", TOOLS, temperature=3)
        return plain(program, asked), streamed(program, asked)

    answers = all_of(ask, 16)
    for whole, pieces in answers:
        assert_called(whole, TOOLS)
        assert pieces == whole
    names = [name for whole, _ in answers for name, _ in whole.calls]
    assert len(set(names)) > 1
    assert any(len(whole.calls) > 1 for whole, _ in answers), "no parallel calls were made"


@pytest.mark.parametrize("name", TOOLS)
def test_a_named_choice_calls_that_one_once(program: Program, name: str) -> None:
    for number in range(4):
        asked = body(number, named(name), TOOLS)
        whole = plain(program, asked)
        assert_called(whole, TOOLS)
        assert [called for called, _ in whole.calls] == [name]
        assert streamed(program, asked) == whole


def test_greedy_calls_are_forced_as_well(program: Program) -> None:
    asked = body(0, "required", TOOLS, temperature=0)
    assert_called(plain(program, asked), TOOLS)
    assert streamed(program, asked) == plain(program, asked)


def test_each_choice_has_calls_of_its_own(program: Program) -> None:
    status, answer = program.post(CHAT, body(5, "required", TOOLS, n=4, temperature=3))
    assert status == 200, answer
    messages = [choice["message"] for choice in answer["choices"]]
    for message in messages:
        for call in message["tool_calls"]:
            assert_valid(TOOLS[call["function"]["name"]], call["function"]["arguments"])
    assert len({json.dumps(message["tool_calls"][0]["function"]) for message in messages}) > 1


@pytest.mark.parametrize("choice", ["auto", None], ids=["auto", "absent"])
def test_a_call_that_nobody_forced_is_not_made(program: Program, choice: str | None) -> None:
    for number in range(4):
        asked = body(number, choice, TOOLS, max_tokens=60)
        whole = plain(program, asked)
        assert (whole.reason, whole.calls) == ("length", ())
        assert whole.content
        assert streamed(program, asked) == whole


def test_none_is_a_request_without_tools(program: Program) -> None:
    for number in range(4):
        asked = body(number, "none", TOOLS, max_tokens=60)
        free = {name: asked[name] for name in asked if name not in ("tools", "tool_choice")}
        assert plain(program, asked) == plain(program, free) == streamed(program, asked)


def test_a_call_cut_by_the_limit_is_no_call(program: Program) -> None:
    asked = body(1, named("weather"), TOOLS, max_tokens=30)
    for spoken in (plain(program, asked), streamed(program, asked)):
        assert (spoken.reason, spoken.calls) == ("length", ())
        assert spoken.content is not None
        assert spoken.content.startswith("<tool_call>")


ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
UNSAYABLE: Sequence[Any] = [
    pytest.param({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, id="cycle"),
    pytest.param(ENDLESS, id="endless"),
    pytest.param({"type": "object", "properties": {"a": ENDLESS}, "required": ["a"]}, id="inside"),
    pytest.param({"type": "object", "allOf": [{"type": "string"}]}, id="unsatisfiable"),
    pytest.param({"type": "string"}, id="no-object"),
    pytest.param({"type": "object", "propertyNames": {"maxLength": 1}}, id="keyword"),
    pytest.param({"type": "object", "minProperties": 2}, id="count-of-names"),
]


@pytest.mark.parametrize("parameters", UNSAYABLE)
def test_what_cannot_be_forced_is_left_to_the_instruction(
    program: Program, parameters: Schema
) -> None:
    """200 with plain text, never a 500: nobody asked for the schema but the model's user."""
    asked = body(2, "required", {"f": parameters}, max_tokens=40)
    for spoken in (plain(program, asked), streamed(program, asked)):
        assert (spoken.reason, spoken.calls) == ("length", ())
        assert spoken.content


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"tool_choice": "maybe"}, "tool_choice", id="unknown-word"),
        pytest.param({"tool_choice": named("other")}, "tool_choice.function.name", id="not-there"),
        pytest.param({"tools": []}, "tool_choice", id="no-tools"),
        pytest.param({"tools": [tool("f", {})] * 129}, "tools", id="129-tools"),
        pytest.param(
            {"response_format": {"type": "json_object"}}, "response_format", id="two-forms"
        ),
    ],
)
@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
def test_a_wrong_choice_is_refused_before_the_stream(
    program: Program, fields: dict[str, Any], param: str, asked_stream: bool
) -> None:
    status, answer = program.post(CHAT, body(0, "required", TOOLS, stream=asked_stream) | fields)
    assert status == 400
    assert_error_object(answer, param=param)


def test_the_official_client_puts_a_streamed_call_together(program: Program) -> None:
    """With its own helper, which accumulates deltas, and by hand from the chunks."""
    client = sdk(program)
    fields = body(6, named("weather"), TOOLS)
    fields["extra_body"] = {name: fields.pop(name) for name in ("top_k", "min_p")}
    for entry in fields["tools"]:
        entry["function"]["strict"] = True
    answer = client.chat.completions.create(**fields)
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert_valid(WEATHER, call.function.arguments)
    with client.chat.completions.stream(**fields) as events:
        final = events.get_final_completion()
    (streamed_call,) = final.choices[0].message.tool_calls
    assert streamed_call.function.name == call.function.name == "weather"
    assert streamed_call.function.arguments == call.function.arguments
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.content is None
    chunks = list(client.chat.completions.create(**fields, stream=True))
    parts = [part for c in chunks for part in c.choices[0].delta.tool_calls or ()]
    assert "".join(part.function.arguments or "" for part in parts) == call.function.arguments
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    turns = [*fields["messages"], answer.choices[0].message.model_dump(), result]
    after = client.chat.completions.create(**fields | {"messages": turns, "tool_choice": "auto"})
    assert after.choices[0].message.role == "assistant"
