import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlxcel.core.request import Tool, ToolChoice, ToolMode
from mlxcel.text.tools import formats
from mlxcel.text.tools.filter import ToolFilter
from mlxcel.text.tools.format import ToolFormat
from tests.text.tools.samples import IDS, OSLO, PING, PONG, SAMPLES, TOOLS, WEATHER, Sample

AUTO = ToolChoice()
Result = tuple[str, list[tuple[int, str, str]]]
every_format = pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
# Those with a marker: text may stand around it.
every_marker = pytest.mark.parametrize(
    "sample",
    [
        pytest.param(s, id=name)
        for s, name in zip(SAMPLES, IDS, strict=True)
        if name != "llama3_json"
    ],
)


def run(
    form: ToolFormat,
    parts: list[str],
    choice: ToolChoice = AUTO,
    tools: tuple[Tool, ...] = TOOLS,
) -> Result:
    """All content, and the calls."""
    passed = ToolFilter(form, tools, choice)
    shown = [passed.feed(part) for part in parts]
    rest, calls = passed.finish()
    return "".join([*shown, rest]), [(c.index, c.name, c.arguments) for c in calls]


@every_format
def test_markup_is_never_shown(sample: Sample) -> None:
    passed = ToolFilter(sample.format, TOOLS, AUTO)
    assert "".join(passed.feed(char) for char in sample.two) == ""
    rest, calls = passed.finish()
    assert rest == ""
    assert [call.index for call in calls] == [0, 1]


@every_marker
def test_text_before_is_trimmed_and_text_after_dropped(sample: Sample) -> None:
    text = f"Let me see. \n\n{sample.one}\n Done."
    assert run(sample.format, list(text)) == ("Let me see.", [(0, "weather", OSLO)])


@every_format
def test_broken_markup_goes_back_to_content(sample: Sample) -> None:
    assert run(sample.format, list(sample.broken + " ")) == (sample.broken + " ", [])


@every_marker
def test_broken_markup_after_text_leaves_the_text_as_it_was(sample: Sample) -> None:
    text = f"Let me see. \n{sample.broken}"
    assert run(sample.format, list(text)) == (text, [])


@every_format
def test_half_a_marker_at_the_end_is_content(sample: Sample) -> None:
    text = f"a < b {sample.format.start[:-1]}"
    assert run(sample.format, list(text)) == (text, [])


@every_format
def test_undeclared_names_are_dropped_and_leave_a_gap(sample: Sample) -> None:
    assert run(sample.format, [sample.two], tools=(PING,)) == ("", [(1, "ping", PONG)])


@every_format
def test_a_named_choice_drops_other_names(sample: Sample) -> None:
    named = ToolChoice(mode=ToolMode.NAMED, name="ping")
    assert run(sample.format, [sample.two], named) == ("", [(1, "ping", PONG)])


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        pytest.param(ToolChoice(mode=ToolMode.NONE), TOOLS, id="choice-none"),
        pytest.param(AUTO, (), id="no-tools"),
    ],
)
def test_nothing_is_parsed_without_tools(choice: ToolChoice, tools: tuple[Tool, ...]) -> None:
    passed = ToolFilter(formats.JSON_TOOLS, tools, choice)
    text = '<tool_call>{"name": "ping"}</tool_call>'
    assert passed.feed(text) == text
    assert passed.finish() == ("", ())


def test_broken_markup_beside_a_call_is_kept() -> None:
    text = "Hm. <tool_call>oh no</tool_call> and <tool_call>ping</tool_call> bye"
    assert run(formats.GLM47, [text]) == (
        "Hm. <tool_call>oh no</tool_call>",
        [(0, "ping", "{}")],
    )


def test_only_a_possible_marker_and_white_space_are_withheld() -> None:
    passed = ToolFilter(formats.JSON_TOOLS, TOOLS, AUTO)
    parts = ["a \n", "b<tool", "box> c", " <tool_cal", "!"]
    assert [passed.feed(part) for part in parts] == ["a", " \nb", "<toolbox> c", "", " <tool_cal!"]


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        pytest.param([" {", '"name": "ping"'], ["", ""], id="may-be-a-call"),
        pytest.param(["{", '"city": 1}'], ["", '{"city": 1}'], id="another-first-key"),
        pytest.param(
            ['{"name": "Ann"', ', "age": 3'], ["", '{"name": "Ann", "age": 3'], id="no-parameters"
        ),
        pytest.param(["Hi", ' {"name"'], ["Hi", ' {"name"'], id="text-first"),
        pytest.param(["[", "1"], ["[", "1"], id="a-list"),
    ],
)
def test_json_is_withheld_only_while_it_may_be_a_llama_call(
    parts: list[str], shown: list[str]
) -> None:
    passed = ToolFilter(formats.LLAMA3_JSON, TOOLS, AUTO)
    assert [passed.feed(part) for part in parts] == shown


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"name": "ping", "parameters": {}} is the call', id="text-after"),
        pytest.param('{"name": "ping"}', id="no-parameters"),
        pytest.param('{"name": "ping", "parameters": {}}; {"name": "pi', id="half-a-second"),
    ],
)
def test_a_llama_call_without_tag_is_the_whole_content(text: str) -> None:
    assert run(formats.LLAMA3_JSON, list(text)) == (text, [])


def test_a_llama_call_may_name_its_type() -> None:
    text = '{"type": "function", "name": "ping", "parameters": {"id": "a"}}'
    assert run(formats.LLAMA3_JSON, list(text)) == ("", [(0, "ping", PONG)])


# Whole calls, halves of them and everything a marker could be mistaken for.
def pieces(sample: Sample) -> st.SearchStrategy[str]:
    whole = [sample.one, sample.two, sample.broken, sample.format.start, sample.format.end]
    near = [" ", "\n", "a", "<", "{", "}", "[", '"', ";", '{"name": "ping", "parameters": {']
    halves = [sample.one[: len(sample.one) // 2], sample.one[len(sample.one) // 2 :]]
    return st.sampled_from(whole + near + halves)


def split(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@every_format
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_split_gives_the_same_result(sample: Sample, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(pieces(sample), max_size=6)))
    cuts = data.draw(st.lists(st.integers(0, 10_000), max_size=12))
    whole = run(sample.format, [text])
    assert run(sample.format, split(text, cuts)) == whole
    assert run(sample.format, list(text)) == whole
    assert whole[1] or whole[0] == text


@given(text=st.text(alphabet='<tool_ca> /\n"{}nme:', max_size=60))
@example(text="<tool_call>")
def test_content_without_calls_comes_out_as_it_went_in(text: str) -> None:
    for form in (formats.JSON_TOOLS, formats.LLAMA3_JSON):
        assert run(form, list(text), tools=(WEATHER,)) == (text, [])
