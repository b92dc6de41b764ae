import json
import time

import pytest

from mlxcel.text.tools import formats
from mlxcel.text.tools.format import ToolFormat
from tests.text.tools.samples import IDS, OSLO, PING, PONG, SAMPLES, TOOLS, TYPED, Sample, tool

every_format = pytest.mark.parametrize("sample", SAMPLES, ids=IDS)


def parsed(sample: Sample, text: str) -> list[tuple[int, str, str]]:
    calls = sample.format.parse(text, TOOLS)
    return [(call.index, call.name, call.arguments) for call in calls]


@every_format
def test_one_call(sample: Sample) -> None:
    assert parsed(sample, sample.one) == [(0, "weather", OSLO)]


@every_format
def test_two_calls_in_order(sample: Sample) -> None:
    assert parsed(sample, sample.two) == [(0, "weather", OSLO), (1, "ping", PONG)]


@every_format
def test_values_have_the_types_of_the_schema(sample: Sample) -> None:
    assert parsed(sample, sample.typed) == [(0, "weather", TYPED)]


@every_format
def test_broken_markup_is_no_call(sample: Sample) -> None:
    with pytest.raises(ValueError, match=f"no whole {sample.format.name} call"):
        sample.format.parse(sample.broken, TOOLS)


@every_format
def test_every_beginning_of_a_call_is_broken_or_text(sample: Sample) -> None:
    """A cut answer never makes a call with fewer arguments."""
    for cut in range(len(sample.one)):
        calls = sample.format.read(sample.one[:cut], TOOLS).calls
        assert [(c.name, c.arguments) for c in calls] in ([], [("weather", OSLO)])


@every_format
def test_text_without_markup_is_no_call(sample: Sample) -> None:
    with pytest.raises(ValueError, match="no whole"):
        sample.format.parse("It rains in Oslo.", TOOLS)


TEXTUAL = {"minimax_m2", "longcat", "glm47", "qwen3_coder", "minicpm5", "muse_spark"}
textual = pytest.mark.parametrize(
    "sample",
    [pytest.param(s, id=name) for s, name in zip(SAMPLES, IDS, strict=True) if name in TEXTUAL],
)


@textual
def test_text_that_does_not_fit_its_type_stays_text(sample: Sample) -> None:
    text = sample.one.replace("3", "soon").replace("Oslo", "1.10")
    assert parsed(sample, text) == [(0, "weather", '{"city":"1.10","days":"soon"}')]


@textual
def test_the_word_null_is_text_for_a_string(sample: Sample) -> None:
    text = sample.one.replace("Oslo", "null")
    assert parsed(sample, text) == [(0, "weather", '{"city":"null","days":3}')]


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        pytest.param(SAMPLES[IDS.index("glm47")], "<tool_call>ping</tool_call>", id="glm47"),
        pytest.param(
            SAMPLES[IDS.index("longcat")],
            "<longcat_tool_call>ping</longcat_tool_call>",
            id="longcat",
        ),
        pytest.param(
            SAMPLES[IDS.index("qwen3_coder")],
            "<tool_call>\n<function=ping>\n</function>\n</tool_call>",
            id="qwen3_coder",
        ),
        pytest.param(
            SAMPLES[IDS.index("json_tools")], '<tool_call>{"name":"ping"}</tool_call>', id="hermes"
        ),
        pytest.param(
            SAMPLES[IDS.index("pythonic")],
            "<|tool_call_start|>[ping()]<|tool_call_end|>",
            id="pythonic",
        ),
        pytest.param(SAMPLES[IDS.index("gemma4")], "<|tool_call>call:ping{}<tool_call|>", id="g4"),
        pytest.param(
            SAMPLES[IDS.index("minimax_m2")],
            '<minimax:tool_call><invoke name="ping"></invoke></minimax:tool_call>',
            id="minimax",
        ),
    ],
)
def test_a_call_may_have_no_arguments(sample: Sample, text: str) -> None:
    assert parsed(sample, text) == [(0, "ping", "{}")]


def test_markers_inside_json_strings_are_text() -> None:
    inside = '{"id": "</tool_call> <tool_call> [TOOL_CALLS]"}'
    hermes = f'<tool_call>{{"name": "ping", "arguments": {inside}}}</tool_call>'
    mistral = f"[TOOL_CALLS]ping[ARGS]{inside}"
    for form, text in ((formats.JSON_TOOLS, hermes), (formats.MISTRAL_ARGS, mistral)):
        (call,) = form.parse(text, TOOLS)
        assert json.loads(call.arguments) == json.loads(inside)


def test_whole_json_needs_no_end_marker() -> None:
    one = '<tool_call>\n{"name": "ping", "arguments": {"id": "a"}}\n'
    calls = formats.JSON_TOOLS.parse(one + one + "</tool_call>", TOOLS)
    assert [(call.index, call.arguments) for call in calls] == [(0, PONG), (1, PONG)]


def test_a_broken_call_does_not_take_the_next_one_along() -> None:
    bad, good = "<tool_call>weather<arg_key>city", "<tool_call>ping</tool_call>"
    reading = formats.GLM47.read(f"Hm. {bad}{good} bye", TOOLS)
    assert reading.before == "Hm. "
    assert reading.broken == (bad,)
    assert [(call.index, call.name) for call in reading.calls] == [(0, "ping")]


def test_two_functions_in_one_pair_of_markers_stay_two() -> None:
    text = (
        "<tool_call>\n<function=ping>\n<parameter=id>\na\n</parameter>\n</function>\n"
        "<function=ping>\n<parameter=id>\nb\n</parameter>\n</function>\n</tool_call>"
    )
    calls = formats.QWEN3_CODER.parse(text, TOOLS)
    assert [call.arguments for call in calls] == ['{"id":"a"}', '{"id":"b"}']


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"id": NaN}', id="nan"),
        pytest.param("[1]", id="list"),
        pytest.param("3", id="number"),
        pytest.param('"text"', id="text"),
        pytest.param('{"id":' + "[" * 100_000 + "]" * 100_000 + "}", id="deep"),
    ],
)
def test_arguments_that_are_no_json_object_are_broken(arguments: str) -> None:
    text = f'<tool_call>{{"name": "ping", "arguments": {arguments}}}</tool_call>'
    reading = formats.JSON_TOOLS.read(text, TOOLS)
    assert not reading.calls
    assert "".join(reading.broken) == text


def test_arguments_inside_a_json_string_are_read() -> None:
    text = r'<tool_call>{"name": "ping", "arguments": "{\"id\": \"a\"}"}</tool_call>'
    assert formats.JSON_TOOLS.parse(text, TOOLS)[0].arguments == PONG


def test_half_a_surrogate_pair_can_be_sent_as_utf8() -> None:
    text = r'<tool_call>{"name": "ping", "arguments": {"id": "\ud800ø"}}</tool_call>'
    (call,) = formats.JSON_TOOLS.parse(text, TOOLS)
    assert json.loads(call.arguments.encode()) == {"id": "\ud800ø"}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        pytest.param(
            formats.KIMI_K2,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0"
            "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.ping:1"
            "<|tool_calls_section_end|>",
            id="kimi_k2",
        ),
        pytest.param(
            formats.KIMI_K3,
            '<|open|>tools<|sep|><|open|>call tool="ping"<|sep|><|close|>call<|sep|>'
            '<|open|>call tool="ping"<|sep|><|open|>json type="object"<|sep|>{"id"'
            "<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
            id="kimi_k3-json",
        ),
        pytest.param(
            formats.KIMI_K3,
            '<|open|>tools<|sep|><|open|>call tool="ping"<|sep|>'
            '<|open|>argument key="id" type="string"<|sep|>a'
            "<|close|>call<|sep|><|close|>tools<|sep|>",
            id="kimi_k3-argument",
        ),
        pytest.param(
            formats.QWEN3_CODER,
            "<tool_call>\n<function=ping>\n</function>\n<function=ping>\n</tool_call>",
            id="qwen3_coder",
        ),
    ],
)
def test_a_broken_call_inside_a_section_is_not_skipped(form: ToolFormat, text: str) -> None:
    assert form.read(text, TOOLS).broken == (text,)


def test_prose_after_a_marker_is_no_call() -> None:
    for text in ("<tool_call></tool_call>", "<tool_call>I will ping now</tool_call>"):
        assert not formats.GLM47.read(text, TOOLS).calls


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        pytest.param("5", {"type": "integer"}, 5, id="integer"),
        pytest.param(" 5\n", {"type": "integer"}, 5, id="integer-in-white-space"),
        pytest.param("5.0", {"type": "integer"}, 5, id="whole-number"),
        pytest.param("5.5", {"type": "integer"}, "5.5", id="not-whole"),
        pytest.param("1_000", {"type": "integer"}, "1_000", id="python-integer"),
        pytest.param("5", {"type": "number"}, 5, id="number-without-point"),
        pytest.param("1e999", {"type": "number"}, "1e999", id="infinite"),
        pytest.param("True", {"type": "boolean"}, True, id="python-boolean"),
        pytest.param("yes", {"type": "boolean"}, "yes", id="not-boolean"),
        pytest.param("1", {"type": "boolean"}, "1", id="number-for-boolean"),
        pytest.param("None", {"type": ["integer", "null"]}, None, id="python-null"),
        pytest.param("[1]", {"type": "object"}, "[1]", id="array-for-object"),
        pytest.param("{'a': 1}", {"type": "object"}, "{'a': 1}", id="python-object"),
        pytest.param('"a"', {"type": "string"}, '"a"', id="quotes-are-text"),
        pytest.param("5", {}, "5", id="no-type"),
        pytest.param("5", {"enum": ["5", "6"]}, "5", id="enum-of-texts"),
        pytest.param("5", {"enum": [5, 6]}, 5, id="enum-of-integers"),
        pytest.param("5", {"const": 5}, 5, id="const"),
        pytest.param("5", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, 5, id="any-of"),
        pytest.param("5", {"type": ["string", "integer"]}, 5, id="most-specific"),
        pytest.param("5", {"$ref": "#/$defs/n"}, 5, id="reference"),
        pytest.param("5", {"$ref": "#/$defs/loop"}, "5", id="reference-to-itself"),
        pytest.param("5", {"$ref": "https://example.com/n"}, "5", id="reference-elsewhere"),
    ],
)
def test_text_is_typed(text: str, schema: dict[str, object], value: object) -> None:
    parameters = {
        "properties": {"x": schema},
        "$defs": {
            "n": {"type": "integer"},
            "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]},
        },
    }
    text = f"<tool_call>\n<function=f>\n<parameter=x>{text}</parameter></function></tool_call>"
    (call,) = formats.QWEN3_CODER.parse(text, [tool("f", parameters)])
    assert json.loads(call.arguments) == {"x": value}
    assert type(json.loads(call.arguments)["x"]) is type(value)


@every_format
def test_odd_schemas_do_not_stop_a_parser(sample: Sample) -> None:
    odd = [tool("weather", {"properties": {"city": True}}), tool("ping", {"properties": None})]
    (call,) = sample.format.parse(sample.one, odd)
    assert json.loads(call.arguments)["city"] == "Oslo"


def test_names_no_tool_has_are_still_calls() -> None:
    (call,) = formats.JSON_TOOLS.parse('<tool_call>{"name":"x.y-1"}</tool_call>', [PING])
    assert call.name == "x.y-1"


def test_mistral_names_may_have_dots() -> None:
    (call,) = formats.MISTRAL_ARGS.parse("[TOOL_CALLS]files.read[ARGS]{} and so on", [PING])
    assert call.name == "files.read"


def test_numbers_beyond_floats_are_clamped() -> None:
    text = '<tool_call>{"name": "ping", "arguments": {"id": [-1e999]}}</tool_call>'
    (call,) = formats.JSON_TOOLS.parse(text, TOOLS)
    assert call.arguments == '{"id":[-1.7976931348623157e+308]}'


HOSTILE = (
    "call:a{",
    '<|"|>',
    "[a(",
    "<|open|>call",
    "<invoke name=",
    "<function=a>",
    '<param name="a">',
    "<atem:invoke",
    "<arg_key>",
    '{"name":',
    "[",
)


@every_format
def test_hostile_markup_is_read_in_no_time(sample: Sample) -> None:
    """20 KB each; some of the library's patterns would search for minutes."""
    start, end = sample.format.start, sample.format.end
    texts = [start + part * (20_000 // len(part)) + end for part in HOSTILE]
    texts += [start * (20_000 // len(start)) + end, f"{start}{{" * 1000 + end]
    began = time.perf_counter()
    for text in texts:
        sample.format.read(text, TOOLS)
    assert time.perf_counter() - began < 6
