"""Public faults, family F: structured output."""

import http.client
import json
import time
from typing import Any

import pytest

from tests.cases.asking import assert_error_object, processes
from tests.cases.routes import (
    CHATS,
    MESSAGES,
    NATIVE,
    RESPONSES,
    ROUTES,
    TEXTS,
    Route,
    name_of,
)
from tests.whole.program import Program, text_of
from tests.whole.schemas import json_schema

pytestmark = pytest.mark.whole

CYCLE = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
AROUND = {
    "$ref": "#/$defs/a",
    "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
}
ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
REFERENCES = {"allOf": [{"$ref": "#/$defs/a"}] * 65, "$defs": {"a": {}}}
GROWTH = 1.15


def nested(levels: int) -> str:
    """A schema as text: `json` refuses to write what is nested so deep."""
    return f'{{"enum": [{"[" * levels}{"]" * levels}]}}'


def wide(size: int) -> str:
    return json.dumps({"enum": ["x" * 1000] * (size // 1000)})


BOMBS = [
    pytest.param(json.dumps(CYCLE), id="points-at-itself"),
    pytest.param(json.dumps(AROUND), id="in-a-circle"),
    pytest.param(json.dumps({"$ref": "#"}), id="root"),
    pytest.param(json.dumps(ENDLESS), id="endless-value"),
    pytest.param(nested(5000), id="5000-arrays"),
    pytest.param(nested(40), id="40-arrays"),
    pytest.param(wide(2_000_000), id="2-MB"),
    pytest.param(json.dumps({"type": "string", "pattern": "(?=a)b"}), id="look-around"),
    pytest.param(
        json.dumps({"allOf": [{"$ref": "#/$defs/a"}] * 65, "$defs": {"a": {}}}), id="refs"
    ),
]


HERE = "the place of the schema"


def sent(
    program: Program, schema: str, *, streamed: bool, route: Route = CHATS
) -> tuple[int, str, Any, float]:
    """(status, content type, body, seconds) for a schema that is text already."""
    body = json.dumps(route.body("hi", max_tokens=4, stream=streamed, **route.form(HERE)))
    raw = body.replace(json.dumps(HERE), schema).encode()
    host, _, port = program.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    began = time.monotonic()
    try:
        connection.request("POST", route.path, raw, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        took = time.monotonic() - began
        return response.status, response.headers["Content-Type"], json.loads(answer), took
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("route", "streamed"),
    [
        pytest.param(CHATS, True, id="chat-stream"),
        pytest.param(CHATS, False, id="chat"),
        pytest.param(TEXTS, True, id="text-stream"),
        pytest.param(NATIVE, True, id="native-stream"),
        pytest.param(NATIVE, False, id="native"),
        pytest.param(RESPONSES, True, id="responses-stream"),
        pytest.param(MESSAGES, True, id="messages-stream"),
    ],
)
@pytest.mark.parametrize("schema", BOMBS)
def test_f2_a_schema_that_goes_on_for_ever_is_refused(
    tiny_server: Program, schema: str, route: Route, streamed: bool
) -> None:
    """F2: a cycle overflowed the stack and killed the process.

    https://github.com/mudler/LocalAI/pull/11041
    """
    status, kind, answer, took = sent(tiny_server, schema, streamed=streamed, route=route)
    assert (status, kind) == (400, "application/json")
    route.assert_refused(answer)
    assert (answer["error"].get("param") or route.form_param).startswith(route.form_param)
    assert took < 1.0


LONG_CHAIN = "\n".join(f'r{n} ::= "b" r{n + 1}' for n in range(8000))
GRAMMARS = [
    pytest.param("root ::= root", id="itself"),
    pytest.param("root ::= a\na ::= b\nb ::= root", id="in-a-circle"),
    pytest.param(f'root ::= r0\n{LONG_CHAIN}\nr8000 ::= "x"', id="8000-rules-in-a-chain"),
    pytest.param(f'root ::= {"(" * 5000}"a"{")" * 5000}', id="5000-groups"),
    pytest.param(f'root ::= "a"{"+" * 5000}', id="5000-counts"),
    pytest.param('root ::= "a"{1000000}', id="a-million-times"),
    pytest.param(f'root ::= "{"a" * 300_000}"', id="300-KB"),
]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_f2_a_grammar_that_goes_on_for_ever_is_refused(tiny_server: Program, grammar: str) -> None:
    """F2: the native routes take grammars as they are, and have the same stack to overflow."""
    pids = {name: process.pid for name, process in processes(tiny_server).items()}
    began = time.monotonic()
    status, answer = tiny_server.post(NATIVE.path, NATIVE.body("hi", grammar=grammar))
    assert time.monotonic() - began < 1.0
    assert status == 400
    assert_error_object(answer, param="grammar")
    assert {name: process.pid for name, process in processes(tiny_server).items()} == pids


def test_f2_memory_comes_back(tiny_server: Program) -> None:
    """F2: the process lives and is no bigger for what it refused."""
    schema = wide(2_000_000)
    for _ in range(3):
        sent(tiny_server, schema, streamed=False)
    before = {name: process.memory_info().rss for name, process in processes(tiny_server).items()}
    for number in range(20):
        route = ROUTES[number % len(ROUTES)]
        assert sent(tiny_server, schema, streamed=False, route=route)[0] == 400
        assert sent(tiny_server, json.dumps(CYCLE), streamed=False, route=route)[0] == 400
    for name, process in processes(tiny_server).items():
        assert process.memory_info().rss < GROWTH * before[name]
    assert tiny_server.health()["worker"]["restarts"] == 0


def test_f2_a_schema_that_comes_back_to_itself_inside_is_fine(tiny_server: Program) -> None:
    """F2: it is the endless ones that are refused, not recursion."""
    chain = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        "required": ["next"],
        "additionalProperties": False,
    }
    bias = {str(ord("n")): 50}
    fields = {"response_format": json_schema(chain), "logit_bias": bias, "max_tokens": 60}
    assert json.loads(text_of(tiny_server.chat("hi", **fields))) == {"next": None}


POINTERS = [
    pytest.param("#/properties/l/anyOf/1", "y", id="the-case"),
    pytest.param("#/properties/l/anyOf/0", "x", id="first"),
    pytest.param("#/properties/a~1b/items/0", "z", id="escaped-slash"),
    pytest.param("#/properties/a%7E1b/items/0", "z", id="percent"),
    pytest.param("#/$defs/p~0q", "w", id="escaped-tilde"),
]


@pytest.mark.parametrize(("pointer", "expected"), POINTERS)
@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_f4_a_reference_goes_into_an_array(
    tiny_server: Program, route: Route, pointer: str, expected: str
) -> None:
    """F4: a pointer through `anyOf/0` was not found.

    https://github.com/ggml-org/llama.cpp/issues/16790
    """
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "l": {"anyOf": [{"const": "x"}, {"const": "y"}]},
            "a/b": {"type": "array", "items": [{"const": "z"}], "maxItems": 1},
            "r": {"$ref": pointer},
        },
        "required": ["l", "r"],
        "additionalProperties": False,
        "$defs": {"p~q": {"const": "w"}},
    }
    fields = {**route.form(schema), "max_tokens": 60}
    answer = json.loads(route.plain(tiny_server, "hi", **fields).text)
    assert answer["r"] == expected
    assert answer["l"] in ("x", "y")
    assert json.loads(route.streamed(tiny_server, "hi", **fields).text) == answer


@pytest.mark.parametrize("pointer", ["#/properties/l/anyOf/2", "#/nothing", "#/properties/l/0"])
@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_f4_a_reference_to_nothing_is_named(
    tiny_server: Program, route: Route, pointer: str
) -> None:
    """F4: what is not there is a 400 that shows the pointer."""
    schema = {"properties": {"l": {"anyOf": [{}, {}]}, "r": {"$ref": pointer}}}
    status, answer = tiny_server.post(route.path, route.body("hi", **route.form(schema)))
    assert status == 400
    route.assert_refused(answer, param=route.form_param)
    assert pointer in answer["error"]["message"]
