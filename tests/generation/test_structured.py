"""From the form a client asked for to a grammar, or to the reason why not."""

import json
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from mlxcel.core.byte_vocab import EOS, VOCAB_SIZE
from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.generation.structured import compiled
from mlxcel.text.bytes import byte_tokenizer

BYTES = LLTokenizer(byte_tokenizer().to_str(), n_vocab=VOCAB_SIZE, eos_token=EOS)
DEFS = "$defs"


def of(kind: OutputKind, source: str = "", param: str = "response_format") -> str:
    return compiled(OutputFormat(kind=kind, source=source, param=param))


def schema(source: object) -> str:
    return of(OutputKind.JSON_SCHEMA, json.dumps(source))


def accepts(grammar: str, text: str | bytes) -> bool:
    """As a whole answer."""
    matcher = LLMatcher(BYTES, grammar, log_level=0)
    tokens = list(text.encode() if isinstance(text, str) else text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def nested(depth: int) -> str:
    return '{"items":' * depth + "{}" + "}" * depth


def test_schemas_at_the_limits_are_taken() -> None:
    assert accepts(of(OutputKind.JSON_SCHEMA, nested(31)), "1")
    assert accepts(schema({"title": "x" * 65_523}), "1")
    many = {"anyOf": [{"$ref": "#/$defs/a"}] * 64, DEFS: {"a": {"const": 1}}}
    assert accepts(schema(many), "1")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"pattern": "^((a{1000}){1000}){1000}$", "type": "string"}, id="repeats"),
        pytest.param({"properties": {f"p{n}": {"type": "string"} for n in range(2000)}}, id="2000"),
        pytest.param({"type": "integer", "multipleOf": 9973}, id="factor"),
        pytest.param({"enum": [f"v{n}" for n in range(5000)]}, id="enum"),
        pytest.param({"minItems": 10**9, "maxLength": 10**9}, id="counts"),
        pytest.param(
            {
                "$ref": "#/$defs/0",
                DEFS: {
                    **{str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(30)},
                    "30": {"type": "null"},
                },
            },
            id="doubling",
        ),
    ],
)
def test_large_schemas_take_a_bounded_time(source: object) -> None:
    started = time.perf_counter()
    schema(source)
    assert time.perf_counter() - started < 2.0


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        pytest.param(
            {
                "type": "object",
                "properties": {
                    "a": {"anyOf": [{"type": "integer"}]},
                    "b": {"$ref": "#/properties/a/anyOf/0"},
                },
                "required": ["b"],
                "additionalProperties": False,
            },
            ['{"b":1}', '{"a":1,"b":2}'],
            ['{"b":"x"}', "{}"],
            id="F4-pointer-through-anyOf",
        ),
        pytest.param(
            {"$ref": "#/$defs/a~1b%20c", DEFS: {"a/b c": {"const": 1}}}, ["1"], ["2"], id="escapes"
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
            ["{}", '{"a":{"a":{}}}'],
            ['{"a":1}'],
            id="recursion",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"n": {"type": "null"}, "a": {"$ref": "#/$defs/x"}},
                "additionalProperties": False,
                DEFS: {"x": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/x"}}},
            },
            ["{}", '{"n":null}'],
            ['{"a":[]}', '{"a":[['],
            id="endless-branch-left-out",
        ),
        pytest.param(
            {
                "type": "array",
                "items": [{"type": "null"}],
                "additionalItems": {"type": "integer"},
            },
            ["[null]", "[null,1,2]"],
            ["[1]", "[null,null]"],
            id="old-items",
        ),
        pytest.param(
            {"type": "integer", "minimum": 2, "exclusiveMinimum": True, "maximum": 5},
            ["3", "5"],
            ["2", "6"],
            id="draft-4-exclusive",
        ),
        pytest.param(
            {"type": "number", "exclusiveMinimum": 32, "maximum": 32.5},
            ["32.1", "32.5"],
            ["32", "32.0", "32.6"],
            id="exclusive-and-maximum-in-one-unit",
        ),
        pytest.param(
            {"type": "number", "exclusiveMaximum": -32, "minimum": -32.5},
            ["-32.1", "-32.5"],
            ["-32", "-32.6"],
            id="exclusive-and-minimum-in-one-unit",
        ),
        pytest.param(
            {"type": "number", "minimum": 26.0781, "maximum": 26.5781, "multipleOf": 0.5},
            ["26.5"],
            ["26.0", "27.0", "26.3"],
            id="multiples-in-finer-bounds",
        ),
        pytest.param(
            {"type": "number", "exclusiveMinimum": 12, "exclusiveMaximum": 12.2, "multipleOf": 0.1},
            ["12.1"],
            ["12", "12.2", "12.15"],
            id="a-single-multiple",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"é": {"type": "integer"}, "a/b": {"type": "integer"}},
                "additionalProperties": {"type": "string"},
            },
            ['{"é":1}', '{"x":"1"}'],
            ['{"\\u00e9":"1"}', '{"é":"1"}', '{"a\\/b":"1"}'],
            id="no-name-in-a-second-spelling",
        ),
        pytest.param(
            {"type": "array", "uniqueItems": False, "nullable": True, "x-y": 1, "readOnly": True},
            ["[]", "[1,1]"],
            ["1"],
            id="words-that-bind-nothing",
        ),
        pytest.param(
            {"type": "object", "minProperties": 2, "required": ["a", "b", "a"]},
            ['{"a":1,"b":2}'],
            ['{"a":1}'],
            id="minProperties-by-required",
        ),
        pytest.param(
            {"type": "integer", "format": "int64"}, ["1"], ["1.5"], id="format-of-a-number"
        ),
        pytest.param(True, ["1", '{"a":[]}'], ["x"], id="true"),
    ],
)
def test_what_a_schema_lets_through(source: object, good: list[str], bad: list[str]) -> None:
    grammar = schema(source)
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        pytest.param('{"a":[1,2],"b":3}', True, id="compact"),
        pytest.param('{"a": [1, 2], "b": 3}', True, id="one-blank"),
        pytest.param('{"a":  [1], "b": 3}', False, id="two-blanks"),
        pytest.param('{\n"a": [1]}', False, id="line"),
        pytest.param('{"a": [ 1 ]}', False, id="inside-brackets"),
        pytest.param(' {"a": 1}', False, id="before"),
    ],
)
def test_blanks_are_bounded(text: str, is_taken: bool) -> None:
    assert accepts(of(OutputKind.JSON_OBJECT), text) is is_taken


def test_json_object_is_an_object() -> None:
    grammar = of(OutputKind.JSON_OBJECT)
    assert accepts(grammar, '{"a": [1, {"b": null}]}')
    assert not accepts(grammar, "[]")


@settings(max_examples=40)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text('abc/~"\\é ', max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_constant_lets_itself_through(value: object) -> None:
    grammar = schema({"const": value})
    assert accepts(grammar, json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert not accepts(grammar, json.dumps([value, value]))


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        pytest.param(OutputKind.REGEX, r"a/\d{2}", "a/42", "a/4", id="regex"),
        pytest.param(OutputKind.GBNF, 'root ::= "a" | "b" root', "bba", "b", id="gbnf"),
        pytest.param(OutputKind.LARK, 'start: "a" | "b" start', "bba", "b", id="lark"),
    ],
)
def test_grammars(kind: OutputKind, source: str, good: str, bad: str) -> None:
    grammar = of(kind, source)
    assert accepts(grammar, good)
    assert not accepts(grammar, bad)


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        pytest.param(OutputKind.REGEX, "(", "not a regular expression", id="regex"),
        pytest.param(OutputKind.REGEX, "(?=a)b", "not a regular expression", id="look-ahead"),
        pytest.param(
            OutputKind.REGEX, r"[^\s\S]", "not a regular expression", id="matches-nothing"
        ),
        pytest.param(OutputKind.GBNF, 'root ::= "a', "not a GBNF grammar: never closed", id="gbnf"),
        pytest.param(OutputKind.GBNF, "root ::= x", "not a GBNF grammar", id="gbnf-unknown-rule"),
        pytest.param(OutputKind.GBNF, "", "not a GBNF grammar", id="gbnf-empty"),
        pytest.param(
            OutputKind.GBNF, "root ::= " + "(" * 3000 + ")" * 3000, "not a GBNF", id="gbnf-deep"
        ),
        pytest.param(OutputKind.GBNF, "root ::= root", "not a grammar that", id="gbnf-endless"),
        pytest.param(OutputKind.LARK, "start: x", "not a grammar that can be", id="lark"),
        pytest.param(OutputKind.LARK, "start: start", "not a grammar that can", id="lark-endless"),
        pytest.param(OutputKind.LARK, " " * 262_145, "262145 bytes long; at", id="lark-size"),
    ],
)
def test_wrong_grammars_blame_their_field(kind: OutputKind, source: str, words: str) -> None:
    with pytest.raises(BadField) as error:
        of(kind, source, "grammar")
    assert error.value.param == "grammar"
    assert error.value.message.startswith(f"grammar: {words}")


def test_grammar_may_name_tokens_of_the_model() -> None:
    assert "<|tool|>" in of(OutputKind.LARK, 'start: <|tool|> "a"')


def test_the_front_stays_without_mlx() -> None:
    code = (
        "import sys, mlxcel.generation.structured; "
        "assert not {'mlx', 'mlx_lm', 'transformers', 'torch'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
