"""Thoughts, calls and log-probabilities in the events of an answer."""

import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.events import (
    ChoiceFinished,
    Event,
    FinishReason,
    Likely,
    ReasoningDelta,
    TextDelta,
    TokenLogprobs,
    ToolCallDelta,
)
from mlxcel.core.request import ChatPrompt, ToolChoice, ToolMode
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.options import ReasoningFormat
from mlxcel.link.messages import RowEvent, RowTokens, TokenScores
from tests.generation.rows import (
    BEGUN,
    calls_of,
    end_of,
    ended,
    finish_of,
    finished,
    new_assembler,
    play,
    reasoning_of,
    said,
    text_of,
    whole,
)
from tests.generation.speaking import CALLS, HERMES, THINKS, TURNS, WEATHER, chat_model

WORDS = (*THINKS, *CALLS)
SPEAKER = chat_model(HERMES + TURNS, WORDS)
TOOLS = {"tools": (WEATHER,)}
REQUIRED = ToolChoice(mode=ToolMode.REQUIRED)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
OSLO = ("weather", '{"city":"Oslo"}')


def told(
    text: str,
    *,
    cuts: list[int] | None = None,
    model: ChatModel = SPEAKER,
    reason: FinishReason = FinishReason.EOS,
    **how: Any,
) -> list[Event]:
    ids = model.text.encode(text)
    where = range(len(ids)) if cuts is None else cuts
    answer = new_assembler(model, **how)
    events = play(answer, whole(ids, where, reason))
    assert answer.is_done
    return events


def shown(events: list[Event]) -> tuple[str, str]:
    return reasoning_of(events), text_of(events)


def test_thinking_is_told_apart_from_the_answer() -> None:
    events = told("<think>\nI wonder\n</think>\n\nYes.", cuts=[])
    assert events[2:5] == [
        ReasoningDelta("I wonder"),
        TextDelta("Yes."),
        ChoiceFinished(FinishReason.EOS),
    ]


def test_answer_to_a_primed_prompt_streams_reasoning_from_the_first_token() -> None:
    events = told("I\n</think>\nYes", is_open=True)
    assert events[2] == ReasoningDelta("I")
    assert shown(events) == ("I", "Yes")


def test_thought_begun_by_the_client_goes_on_in_its_words() -> None:
    assert shown(told(" if\n</think> Yes", is_open=True, continues=True)) == (" if", "Yes")


@pytest.mark.parametrize(("special", "text"), [(True, "ab"), (False, "a</think>b")])
def test_closing_that_closes_nothing_is_shown_only_when_it_is_text(
    special: bool, text: str
) -> None:
    model = chat_model(words=THINKS, special=special)
    assert shown(told("a</think>b", model=model)) == ("", text)


RAW = "<think>\nI\n</think>\n\nYes"


@pytest.mark.parametrize(
    ("form", "reasoning", "content"),
    [
        pytest.param(ReasoningFormat.AUTO, "I", "Yes", id="auto"),
        pytest.param(ReasoningFormat.DEEPSEEK, "I", "Yes", id="deepseek"),
        pytest.param(ReasoningFormat.LEGACY, "I", RAW, id="legacy"),
        pytest.param(ReasoningFormat.NONE, "", RAW, id="none"),
    ],
)
def test_format_says_where_thinking_is_shown(
    form: ReasoningFormat, reasoning: str, content: str
) -> None:
    assert shown(told(RAW, model=chat_model(words=WORDS, format=form))) == (reasoning, content)


def test_unparsed_answer_is_the_raw_text() -> None:
    model = chat_model(HERMES + TURNS, WORDS, parses=False)
    events = told(RAW + CALL, model=model, prompt=TOOLS)
    assert shown(events) == ("", RAW + CALL)
    assert end_of(events) == ChoiceFinished(FinishReason.EOS)


@given(cuts=st.lists(st.integers(0, 90)))
def test_events_join_to_the_same_however_tokens_arrive(cuts: list[int]) -> None:
    events = told(f"{RAW} {CALL}", cuts=cuts, prompt=TOOLS)
    assert shown(events) == ("I", "Yes")
    assert calls_of(events) == [OSLO]
    assert end_of(events).reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize("special", [True, False], ids=["special", "added"])
def test_no_delta_holds_any_part_of_the_markup(special: bool) -> None:
    model = chat_model(HERMES + TURNS, WORDS, special=special)
    events = told(f"Look: {CALL}", model=model, prompt=TOOLS)
    assert text_of(events) == "Look:"
    streamed, plain = calls_of(events), calls_of(told(f"Look: {CALL}", cuts=[], prompt=TOOLS))
    assert streamed == plain == [OSLO]


@pytest.mark.parametrize(
    "prompt", [{}, TOOLS | {"tool_choice": ToolChoice(mode=ToolMode.NONE)}], ids=["none", "off"]
)
def test_markers_of_calls_say_nothing_where_no_tool_is_offered(prompt: dict[str, Any]) -> None:
    assert text_of(told("a<tool_call>b</tool_call>c", prompt=prompt)) == "abc"


def test_calls_come_whole_between_text_and_end() -> None:
    events = told(CALL + "\n" + CALL, prompt=TOOLS)[2:-1]
    assert [type(event) for event in events] == [ToolCallDelta, ToolCallDelta, ChoiceFinished]
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [call.index for call in calls] == [0, 1]
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", call.call_id) for call in calls)
    assert calls[0].call_id != calls[1].call_id


@pytest.mark.parametrize(
    ("text", "prompt", "reason"),
    [
        pytest.param(CALL, TOOLS, FinishReason.TOOL_CALLS, id="auto"),
        pytest.param(CALL, TOOLS | {"tool_choice": REQUIRED}, FinishReason.TOOL_CALLS, id="forced"),
        pytest.param("No.", TOOLS, FinishReason.EOS, id="no-call"),
        pytest.param("No.", TOOLS | {"tool_choice": REQUIRED}, FinishReason.EOS, id="unmet"),
        pytest.param(CALL.replace("weather", "time"), TOOLS, FinishReason.EOS, id="undeclared"),
        pytest.param(f"<think>{CALL}</think>a", TOOLS, FinishReason.EOS, id="inside-thinking"),
        pytest.param(CALL, {}, FinishReason.EOS, id="no-tools"),
        pytest.param(
            CALL, TOOLS | {"tool_choice": ToolChoice(mode=ToolMode.NONE)}, FinishReason.EOS,
            id="choice-none",
        ),
    ],
)  # fmt: skip
def test_reason_is_tool_calls_when_and_only_when_there_are_some(
    text: str, prompt: dict[str, Any], reason: FinishReason
) -> None:
    events = told(text, prompt=prompt)
    assert end_of(events).reason is reason
    assert bool(calls_of(events)) is (reason is FinishReason.TOOL_CALLS)


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.STRUCTURE])
def test_calls_are_the_reason_however_the_answer_ended(reason: FinishReason) -> None:
    events = told(CALL, prompt=TOOLS, reason=reason)
    assert end_of(events) == ChoiceFinished(FinishReason.TOOL_CALLS)


HALVES = [
    pytest.param('\n<tool_call>\n{"name": "weather", "argum', id="in-a-call"),
    pytest.param("\n<tool_call>", id="after-a-marker"),
    pytest.param("\n<tool_c", id="in-a-marker"),
]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTEXT])
def test_limit_inside_a_call_after_a_whole_one_is_the_reason(
    half: str, reason: FinishReason
) -> None:
    events = told(f"So. {CALL}{half}", prompt=TOOLS, reason=reason)
    assert end_of(events) == ChoiceFinished(reason)
    assert (calls_of(events), text_of(events)) == ([OSLO], "So.")


def test_half_a_call_of_an_answer_that_ended_by_itself_is_content() -> None:
    half = '<tool_call>\n{"name": "weather", "argum'
    events = told(CALL + half, prompt=TOOLS)
    assert end_of(events) == ChoiceFinished(FinishReason.TOOL_CALLS)
    assert text_of(events) == half


def test_whole_broken_call_stays_content_when_a_limit_ends_the_answer_after_it() -> None:
    broken = "<tool_call>oh no</tool_call>"
    events = told(broken + CALL, prompt=TOOLS, reason=FinishReason.LENGTH)
    assert end_of(events) == ChoiceFinished(FinishReason.TOOL_CALLS)
    assert text_of(events) == broken


def test_forced_choice_that_a_limit_cut_is_met_by_its_whole_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    prompt = TOOLS | {"tool_choice": REQUIRED}
    told(f"{CALL}<tool_call>", prompt=prompt, reason=FinishReason.LENGTH)
    assert [one for one in caplog.records if one.levelno == logging.WARNING] == []


def test_template_without_tools_is_read_in_the_form_it_is_told() -> None:
    model = chat_model("{# <arg_key> #}" + TURNS, CALLS)
    assert calls_of(told(CALL, model=model, prompt=TOOLS)) == [OSLO]
    grammar = model.call_grammar(ChatPrompt(messages=(), **TOOLS, tool_choice=REQUIRED))
    assert grammar is not None
    assert '\\"arguments\\": ' in grammar


def test_calls_are_the_reason_although_a_stop_matched_after_them() -> None:
    events = told(f"{CALL}!", prompt=TOOLS, stop=("!",))
    assert end_of(events) == ChoiceFinished(FinishReason.TOOL_CALLS)
    assert calls_of(events) == [OSLO]


def test_broken_call_is_content_and_a_plain_end() -> None:
    broken = '<tool_call>\n{"name": "weather", "argum\n</tool_call>'
    events = told(broken, prompt=TOOLS)
    assert text_of(events) == broken
    assert end_of(events) == ChoiceFinished(FinishReason.EOS)


def test_form_of_another_family_becomes_the_same_call() -> None:
    model = chat_model("{# tools <arg_key> #}" + TURNS, CALLS)
    markup = "<tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"
    events = told(markup, model=model, prompt=TOOLS)
    assert (calls_of(events), text_of(events)) == ([OSLO], "")


@pytest.mark.parametrize(
    ("text", "parses", "lines"),
    [
        pytest.param("No.", True, 1, id="unmet"),
        pytest.param(CALL, True, 0, id="met"),
        pytest.param(CALL, False, 0, id="not-looked-for"),
    ],
)
def test_unmet_forced_choice_is_logged(
    text: str, parses: bool, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = chat_model(HERMES + TURNS, WORDS, parses=parses)
    told(text, model=model, prompt=TOOLS | {"tool_choice": REQUIRED})
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert [one.getMessage() for one in warnings] == lines * [
        "r1: tool_choice asks for a call, the answer has none"
    ]


@pytest.mark.parametrize(
    ("text", "how", "is_only"),
    [
        pytest.param("<think>I</think>", {}, True, id="thoughts"),
        pytest.param("<think>I</think>\n\n", {}, True, id="thoughts-and-a-line-end"),
        pytest.param("<think>I", {}, True, id="cut-off"),
        pytest.param("I", {"is_open": True, "echoed": "Once"}, True, id="an-echo-is-no-answer"),
        pytest.param("<think>I</think>Yes", {}, False, id="answer"),
        pytest.param(f"<think>I</think>{CALL}", {"prompt": TOOLS}, False, id="call"),
        pytest.param("", {}, False, id="nothing"),
        pytest.param("<think></think>", {}, False, id="nothing-thought"),
    ],
)
def test_answer_of_thoughts_alone_is_marked(text: str, how: dict[str, Any], is_only: bool) -> None:
    assert end_of(told(text, **how)).reasoning_only is is_only


def test_stop_inside_thinking_ends_the_answer() -> None:
    events = told("<think>I wonder</think>Yes", stop=("nd",))
    assert shown(events) == ("I wo", "")
    assert end_of(events) == ChoiceFinished(FinishReason.STOP, 0, "nd", True)


def test_forced_end_of_thinking_is_no_stop_and_counts() -> None:
    close = RowTokens(id="r1", ids=SPEAKER.text.encode("</think>"), is_forced=True)
    rows = [*BEGUN, *said(SPEAKER.text.encode("<think>ab")), close, *said(b"Yes"), ended(),
            finished(7)]  # fmt: skip
    events = play(new_assembler(SPEAKER, stop=("</think>",)), rows)
    assert shown(events) == ("ab", "Yes")
    assert finish_of(events).usage.completion_tokens == 7


def test_message_of_the_budget_streams_as_thought() -> None:
    close = RowTokens(id="r1", ids=SPEAKER.text.encode(" Enough.</think>"), is_forced=True)
    rows = [*BEGUN, *said(SPEAKER.text.encode("<think>ab")), close, *said(b"Yes"), ended()]
    assert shown(play(new_assembler(SPEAKER), rows)) == ("ab Enough.", "Yes")


def scored(text: str, model: ChatModel = SPEAKER) -> list[RowEvent]:
    """Tokens two by two, the likeliest always `a` and the first marker."""
    ids = model.text.encode(text)
    scores = [TokenScores(-float(n), [(97, -0.5), (263, -1.5)]) for n in range(len(ids))]
    pairs = range(0, len(ids), 2)
    rows = [RowTokens(id="r1", ids=ids[n : n + 2], scores=scores[n : n + 2]) for n in pairs]
    return [*BEGUN, *rows, ended(), finished(len(ids))]


def entries_of(events: list[Event]) -> list[TokenLogprobs]:
    deltas = (event for event in events if isinstance(event, TextDelta | ReasoningDelta))
    return [entry for delta in deltas for entry in delta.logprobs]


@pytest.mark.parametrize(
    ("text", "how"),
    [
        pytest.param("hé🎭", {}, id="halves-of-characters"),
        pytest.param("<think>a b</think>\nYes", {}, id="thoughts-and-markers"),
        pytest.param(f"Look: {CALL}", {"prompt": TOOLS}, id="call"),
        pytest.param("aSTx", {"stop": ("STOP",)}, id="held-back"),
    ],
)
def test_there_is_one_entry_for_each_token(text: str, how: dict[str, Any]) -> None:
    entries = entries_of(play(new_assembler(SPEAKER, **how), scored(text)))
    assert b"".join(entry.said.data for entry in entries) == text.encode()
    assert len(entries) == len(SPEAKER.text.encode(text))
    assert [entry.said.logprob for entry in entries] == [-float(n) for n in range(len(entries))]


def test_entry_comes_with_the_text_of_its_token() -> None:
    events = play(new_assembler(SPEAKER, stop=("STOP",)), scored("abS"))
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert [(delta.text, len(delta.logprobs)) for delta in deltas] == [
        ("a", 1), ("b", 1), ("", 1), ("S", 0)
    ]  # fmt: skip


def test_entry_shows_the_bytes_and_the_likeliest_tokens() -> None:
    entry, half = entries_of(play(new_assembler(SPEAKER), scored("bé")))[:2]
    assert entry.said == Likely("b", 0.0, b"b", SPEAKER.text.encode("b")[0])
    marker = Likely("<think>", -1.5, b"<think>", SPEAKER.text.encode("<think>")[0])
    assert entry.top == (Likely("a", -0.5, b"a", SPEAKER.text.encode("a")[0]), marker)
    assert (half.said.token, half.said.data, half.said.logprob) == ("\ufffd", b"\xc3", -1.0)


def test_entries_end_with_the_token_that_completed_a_stop() -> None:
    events = play(new_assembler(SPEAKER, stop=("b",)), scored("abcd"))
    assert [entry.said.token for entry in entries_of(events)] == ["a", "b"]
    assert finish_of(events).usage.completion_tokens == 2


def test_impossible_token_has_a_number_json_knows() -> None:
    row = RowTokens(id="r1", ids=[97], scores=[TokenScores(float("-inf"), [])])
    entry = entries_of(play(new_assembler(SPEAKER), [*BEGUN, row]))[0]
    assert entry.said.logprob == -9999.0
