import json
import random
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, Tokenizer

from mlxcel.core.request import Tool, ToolChoice, ToolMode
from mlxcel.text.tools import formats
from mlxcel.text.tools.filter import ToolFilter
from mlxcel.text.tools.format import ToolFormat
from mlxcel.text.tools.specials import special_words
from tests.text.tools.samples import SAMPLES, tool

REQUIRED = ToolChoice(mode=ToolMode.REQUIRED)
FORCED = (formats.JSON_TOOLS, formats.MISTRAL, formats.MISTRAL_ARGS, formats.LLAMA3_JSON)
FORCED_IDS = ("hermes", "mistral", "mistral-args", "llama3")
EOS = 257

TREE = tool(
    "tree",
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "root": {"$ref": "#/$defs/node"},
            "twin": {"$ref": "#"},
            "kind": {"enum": ["oak", "Föhre", 3, None]},
        },
        "required": ["root"],
        "additionalProperties": False,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "label": {"type": "string", "maxLength": 4},
                    "kids": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/node"},
                        "maxItems": 2,
                    },
                },
                "required": ["label"],
                "additionalProperties": False,
            }
        },
    },
)
COUNT = tool(
    "count",
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 3, "maximum": 40},
            "node": {"$ref": "#/$defs/node"},
        },
        "required": ["n", "node"],
        "additionalProperties": False,
        # The same name as in the other schema, another meaning.
        "$defs": {"node": {"type": "boolean"}},
    },
)
ODD = tool('o"d\\d é', {"properties": {"x": {"const": "\n</call>"}}, "required": ["x"]})
NOTHING = tool("no.thing-1", {})
TOOLS = (TREE, COUNT, ODD, NOTHING)
# Where names stand without quotes there are no odd ones.
TOOLS_OF = {id(form): TOOLS for form in FORCED} | {id(formats.MISTRAL_ARGS): (TREE, COUNT, NOTHING)}


@lru_cache
def llguidance_tokenizer(text: str) -> LLTokenizer:
    return LLTokenizer(text, n_vocab=Tokenizer.from_str(text).get_vocab_size(), eos_token=EOS)


@lru_cache
def matcher_of(tokenizer: str, grammar: str) -> LLMatcher:
    return LLMatcher(llguidance_tokenizer(tokenizer), grammar)


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny / "tokenizer.json"))


@pytest.fixture(scope="module")
def marked(tiny: Path) -> Tokenizer:
    """Each marker is a token; those of Qwen are not marked special, as in its checkpoints."""
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    tokenizer.add_special_tokens(
        [AddedToken(word, special=True, normalized=False) for word in formats.MISTRAL.markers]
    )
    tokenizer.add_tokens(
        [AddedToken(word, special=False, normalized=False) for word in formats.JSON_TOOLS.markers]
    )
    return tokenizer


def walk(tokenizer: Tokenizer, grammar: str, seed: int) -> str:
    """A random answer that the grammar allows, at every step any token of the mask. Quotes and
    closing brackets are more likely, so that it ends."""
    matcher = matcher_of(tokenizer.to_str(), grammar).deep_copy()
    rng, ids = random.Random(seed), list[int]()
    ends = [ord(char) for char in '"]},']
    while not matcher.is_stopped():
        mask = matcher.compute_bitmask()
        allowed = [t for t in range(8 * len(mask)) if mask[t // 8] >> (t % 8) & 1]
        likely = [t for t in allowed if t in ends or t == EOS]
        token = rng.choice(likely if likely and rng.random() < 0.7 else allowed)
        if token == EOS:
            break
        assert matcher.consume_token(token), matcher.get_error()
        ids.append(token)
    assert matcher.is_accepting(), matcher.get_error()
    return tokenizer.decode(ids, skip_special_tokens=False)


def checked_names(form: ToolFormat, text: str, choice: ToolChoice) -> list[str]:
    """The names of the calls, whose arguments are valid."""
    passed = ToolFilter(form, TOOLS, choice)
    shown = "".join(passed.feed(char) for char in text)
    rest, calls = passed.finish()
    assert shown + rest == ""
    schemas = {one.name: one.parameters for one in TOOLS}
    for call in calls:
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])
    return [call.name for call in calls]


@pytest.mark.parametrize("form", FORCED, ids=FORCED_IDS)
@pytest.mark.parametrize("kind", ["plain", "marked"])
def test_forced_calls_parse_and_validate_100_times_of_100(
    form: ToolFormat, kind: str, request: pytest.FixtureRequest
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    specials = special_words(tokenizer, form.markers)
    grammar = form.forced_grammar(TOOLS_OF[id(form)], REQUIRED, specials)
    assert grammar is not None
    names = [checked_names(form, walk(tokenizer, grammar, seed), REQUIRED) for seed in range(100)]
    assert all(names)
    assert {name for one in names for name in one} == {one.name for one in TOOLS_OF[id(form)]}
    # Templates of Llama 3 know one call at a time.
    assert any(len(one) > 1 for one in names) == (form is not formats.LLAMA3_JSON)


@pytest.mark.parametrize("form", FORCED, ids=FORCED_IDS)
def test_a_named_choice_forces_one_call_of_that_name(form: ToolFormat, plain: Tokenizer) -> None:
    choice = ToolChoice(mode=ToolMode.NAMED, name="count")
    grammar = form.forced_grammar(TOOLS_OF[id(form)], choice)
    assert grammar is not None
    for seed in range(10):
        assert checked_names(form, walk(plain, grammar, seed), choice) == ["count"]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        pytest.param(
            formats.JSON_TOOLS,
            '<tool_call>\n{"name": "count", "arguments": {"n": 3, "node": true}}\n</tool_call>\n'
            '<tool_call>\n{"name": "no.thing-1", "arguments": {}}\n</tool_call>',
            id="hermes",
        ),
        pytest.param(
            formats.MISTRAL,
            '[TOOL_CALLS][{"name": "count", "arguments": {"n": 3, "node": true}}, '
            '{"name": "no.thing-1", "arguments": {}}]',
            id="mistral",
        ),
        pytest.param(
            formats.MISTRAL_ARGS,
            '[TOOL_CALLS]count[ARGS]{"n": 3, "node": true}[TOOL_CALLS]no.thing-1[ARGS]{}',
            id="mistral-args",
        ),
        pytest.param(
            formats.LLAMA3_JSON,
            '{"name": "count", "parameters": {"n": 3, "node": true}}',
            id="llama3",
        ),
    ],
)
def test_the_form_is_the_one_models_were_trained_on(
    form: ToolFormat, text: str, plain: Tokenizer
) -> None:
    grammar = form.forced_grammar(TOOLS_OF[id(form)], REQUIRED)
    assert grammar is not None
    matcher = LLMatcher(llguidance_tokenizer(plain.to_str()), grammar)
    other = matcher.deep_copy()
    assert matcher.consume_tokens(list(text.encode())), matcher.get_error()
    assert matcher.is_accepting()
    compact = text.replace('"n": 3', '"n":3').encode()
    assert other.try_consume_tokens(list(compact)) < len(compact)


def test_a_free_name_is_no_second_spelling_of_a_property(plain: Tokenizer) -> None:
    r"""`\u006e` is n: as the name of an additional property it would be n with another type."""
    free = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    choice = ToolChoice(mode=ToolMode.NAMED, name="f")
    grammar = formats.LLAMA3_JSON.forced_grammar([tool("f", free)], choice)
    assert grammar is not None
    for name, is_taken in (("m", True), ("\\u006e", False)):
        matcher = LLMatcher(llguidance_tokenizer(plain.to_str()), grammar)
        text = f'{{"name": "f", "parameters": {{"{name}": "x"}}}}'.encode()
        assert (matcher.try_consume_tokens(list(text)) == len(text)) == is_taken


def test_markers_that_are_tokens_are_forced_as_tokens(marked: Tokenizer) -> None:
    for form in (formats.JSON_TOOLS, formats.MISTRAL):
        specials = special_words(marked, form.markers)
        assert set(specials) >= {form.start}
        grammar = form.forced_grammar(TOOLS, REQUIRED, specials)
        assert grammar is not None
        matcher = LLMatcher(llguidance_tokenizer(marked.to_str()), grammar)
        assert matcher.consume_token(specials[form.start])


def test_a_constant_that_holds_a_marker_is_forced_where_markers_are_text(
    plain: Tokenizer, marked: Tokenizer
) -> None:
    form = formats.JSON_TOOLS
    tools = [tool("f", {"properties": {"x": {"const": "</tool_call>"}}, "required": ["x"]})]
    grammar = form.forced_grammar(tools, REQUIRED)
    assert grammar is not None
    calls = form.parse(walk(plain, grammar, 0), tools)
    assert json.loads(calls[0].arguments)["x"] == "</tool_call>"
    assert form.forced_grammar(tools, REQUIRED, special_words(marked, form.markers)) is None


def test_names_alone_do_for_markers_in_angle_brackets(marked: Tokenizer) -> None:
    specials = frozenset(formats.JSON_TOOLS.markers)
    grammar = formats.JSON_TOOLS.forced_grammar(TOOLS, REQUIRED, specials)
    assert grammar is not None
    assert checked_names(formats.JSON_TOOLS, walk(marked, grammar, 0), REQUIRED)


@pytest.mark.parametrize(
    ("form", "tools", "choice", "specials"),
    [
        pytest.param(formats.JSON_TOOLS, TOOLS, ToolChoice(), {}, id="free-choice"),
        pytest.param(
            formats.JSON_TOOLS,
            [tool("f", {"type": "object", "properties": {"a": {"not": {"type": "null"}}}})],
            REQUIRED,
            {},
            id="keyword-llguidance-lacks",
        ),
        pytest.param(
            formats.JSON_TOOLS, [tool("f", {"type": "string"})], REQUIRED, {}, id="not-an-object"
        ),
        pytest.param(formats.MISTRAL_ARGS, [ODD], REQUIRED, {}, id="name-needs-quotes"),
        pytest.param(formats.JSON_TOOLS, [], REQUIRED, {}, id="no-tools"),
        pytest.param(formats.MISTRAL, TOOLS, REQUIRED, {"[TOOL_CALLS]"}, id="token-without-its-id"),
    ],
)
def test_what_cannot_be_forced_has_no_grammar(
    form: ToolFormat,
    tools: list[Tool],
    choice: ToolChoice,
    specials: Mapping[str, int],
) -> None:
    assert form.forced_grammar(tools, choice, specials) is None


def test_an_inexpressible_schema_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    unique = tool("f", {"properties": {"a": {"type": "array", "uniqueItems": True}}})
    assert formats.JSON_TOOLS.forced_grammar([unique], REQUIRED) is None
    assert "uniqueItems" in caplog.text


def test_formats_that_are_not_json_are_left_to_the_instruction() -> None:
    others = {sample.format.name for sample in SAMPLES if sample.format not in FORCED}
    assert len(others) == 11
    for sample in SAMPLES:
        grammar = sample.format.forced_grammar([TREE], REQUIRED)
        assert (grammar is None) == (sample.format.name in others)


def test_only_tokens_are_special(marked: Tokenizer) -> None:
    marked = Tokenizer.from_str(marked.to_str())
    marked.add_tokens([AddedToken("[X]", special=False, normalized=False)])
    words = ["<tool_call>", "[TOOL_CALLS]", "[X]", "<unknown>"]
    found = special_words(marked, words)
    assert list(found) == ["<tool_call>", "[TOOL_CALLS]"]
    assert all(marked.token_to_id(word) == id for word, id in found.items())
