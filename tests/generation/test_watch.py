"""What the worker is told to watch over."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind, Trigger, TriggerKind
from mlxcel.core.request import Message, TextPrompt, ToolChoice, ToolMode
from mlxcel.core.steering import Constraint, LoopGuard
from mlxcel.core.steering import Trigger as Looked
from mlxcel.generation.render import render, template_kwargs
from mlxcel.generation.structured import compiled
from mlxcel.generation.watch import Watch, loop_guard, thinking_budget, watch_over
from mlxcel.text.prefill import Prompt
from tests.generation.speaking import (
    CALLS,
    HERMES,
    THINKS,
    TURNS,
    USER_HI,
    WEATHER,
    asked,
    chat_model,
)
from tests.settings import settings
from tests.text.thinkers import THINK, UNTHINK

YES = OutputFormat(kind=OutputKind.REGEX, source="yes|no")
REQUIRED = ToolChoice(mode=ToolMode.REQUIRED)


def watch(
    *messages: Message,
    source: str = TURNS,
    words: tuple[str, ...] = THINKS,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Watch:
    request = asked(*messages, **changes)
    model = chat_model(source, words, **(options or {}))
    kwargs = template_kwargs(request, model)
    return watch_over(request, model, render(request, model, kwargs), kwargs)


@pytest.mark.parametrize("text", ["go on", "<think>"], ids=["closed", "open"])
def test_a_text_that_is_gone_on_with_has_the_form_from_its_first_token_on(text: str) -> None:
    model = chat_model(TURNS, THINKS)
    request = replace(asked(output=YES), prompt=TextPrompt(text=text))
    found = watch_over(request, model, Prompt(text=text), {})
    assert found.constraint == Constraint(grammar=compiled(YES))


def test_nothing_is_watched_unasked() -> None:
    assert watch() == Watch()
    assert watch(words=()) == Watch()


@pytest.mark.parametrize(
    ("request_budget", "server_budget", "budget"),
    [
        pytest.param(None, -1, -1, id="none"),
        pytest.param(3, -1, 3, id="request"),
        pytest.param(None, 5, 5, id="server"),
        pytest.param(3, 5, 3, id="request-below-the-servers"),
        pytest.param(9, 5, 9, id="request-above-the-servers"),
        pytest.param(0, 5, 0, id="zero-is-a-budget"),
        pytest.param(-1, 5, -1, id="request-lifts-the-servers-cap"),
    ],
)
def test_budget_of_the_request_else_of_the_server(
    request_budget: int | None, server_budget: int, budget: int
) -> None:
    live = settings(reasoning_budget=server_budget)
    changes: dict[str, Any] = {"thinking_budget": request_budget, "settings": live}
    assert thinking_budget(asked(**changes)) == budget
    thinking = watch(**changes).thinking
    assert (thinking is None) is (budget < 0)
    if thinking is not None:
        assert (thinking.budget, thinking.is_open) == (budget, False)
        assert (thinking.open_ids, thinking.close_ids) == ((THINK,), (UNTHINK,))


OFF = {"kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("source", "prompt", "waits"),
    [
        pytest.param(TURNS, {}, True, id="may-think"),
        pytest.param(TURNS + "<think>\n", {}, True, id="primed"),
        pytest.param(TURNS + "<think>\n\n</think>\n\n", {}, False, id="closed-by-the-prompt"),
        pytest.param(TURNS, OFF, False, id="switched-off"),
        pytest.param(TURNS + "<think>\n", OFF, True, id="primed-although-switched-off"),
    ],
)
def test_constraint_waits_for_the_end_of_a_think_block(
    source: str, prompt: dict[str, Any], waits: bool
) -> None:
    found = watch(source=source, prompt=prompt, output=YES)
    assert found.constraint == Constraint(grammar=compiled(YES), after_thinking=waits)
    assert (found.thinking is not None) is waits
    assert found.is_open is (source == TURNS + "<think>\n")
    if found.thinking is not None:
        assert (found.thinking.budget, found.thinking.is_open) == (-1, found.is_open)


def test_operator_switches_waiting_off() -> None:
    found = watch(output=YES, options={"thinks": False})
    assert found.constraint == Constraint(grammar=compiled(YES))


def test_constraint_binds_an_answer_begun() -> None:
    found = watch(USER_HI, Message(role="assistant", text="y"), output=YES)
    assert found == Watch(constraint=Constraint(grammar=compiled(YES)))


def test_constraint_of_a_model_that_does_not_think_binds_from_the_start() -> None:
    found = watch(words=(), output=YES, thinking_budget=3)
    assert found == Watch(constraint=Constraint(grammar=compiled(YES)))


@pytest.mark.parametrize(
    ("choice", "words", "is_forced"),
    [
        pytest.param(REQUIRED, CALLS, True, id="required"),
        pytest.param(ToolChoice(mode=ToolMode.NAMED, name="weather"), CALLS, True, id="named"),
        pytest.param(ToolChoice(), CALLS, False, id="auto"),
        pytest.param(ToolChoice(mode=ToolMode.NONE), CALLS, False, id="none"),
    ],
)
def test_forced_choice_becomes_a_constraint(
    choice: ToolChoice, words: tuple[str, ...], is_forced: bool
) -> None:
    prompt = {"tools": (WEATHER,), "tool_choice": choice}
    found = watch(source=HERMES + TURNS, words=words, prompt=prompt)
    assert (found.constraint is not None) is is_forced


@pytest.mark.parametrize("words", [(), ("[TOOL_CALLS]",)], ids=["text", "token"])
def test_marker_may_be_a_token_or_text(words: tuple[str, ...]) -> None:
    prompt = {"tools": (WEATHER,), "tool_choice": REQUIRED}
    found = watch(source="{# tools [TOOL_CALLS] #}" + TURNS, words=words, prompt=prompt)
    assert found.constraint is not None


def test_forced_choice_is_left_to_the_words_where_a_call_is_no_json() -> None:
    prompt = {"tools": (WEATHER,), "tool_choice": REQUIRED}
    assert (
        watch(source="{# tools #}<|tool_call_start|>" + TURNS, words=(), prompt=prompt) == Watch()
    )


def test_forced_choice_binds_a_model_that_shows_no_form_of_its_own() -> None:
    prompt = {"tools": (WEATHER,), "tool_choice": REQUIRED}
    found = watch(words=(), prompt=prompt)
    assert found.constraint is not None
    assert "<tool_call>" in found.constraint.grammar


def test_forced_call_waits_for_the_end_of_the_think_block() -> None:
    prompt = {"tools": (WEATHER,), "tool_choice": REQUIRED}
    found = watch(source=HERMES + TURNS, words=(*THINKS, *CALLS), prompt=prompt)
    assert found.constraint is not None
    assert found.constraint.after_thinking
    assert found.thinking is not None


GUARD = LoopGuard(shortest=1, longest=5, count=3)
OTHER = LoopGuard(shortest=2, longest=9, count=2)
GEMMA = LoopGuard(shortest=1, longest=20, count=4)
NO_GUARD = LoopGuard(shortest=1, longest=0, count=4)


@pytest.mark.parametrize(
    ("asked_for", "live", "family", "expected"),
    [
        pytest.param(None, None, "llama", None, id="off"),
        pytest.param(None, None, "gemma4", GEMMA, id="family"),
        pytest.param(None, None, "gemma4_text", GEMMA, id="family-of-text"),
        pytest.param(None, None, "gemma3", None, id="other-gemma"),
        pytest.param(None, OTHER, "gemma4", OTHER, id="setting-beats-family"),
        pytest.param(GUARD, OTHER, "gemma4", GUARD, id="request-beats-setting"),
        pytest.param(NO_GUARD, OTHER, "gemma4", None, id="pattern-size-0-switches-off"),
        pytest.param(None, NO_GUARD, "gemma4", None, id="setting-switches-off"),
        pytest.param(
            LoopGuard(shortest=1, longest=9, count=1), None, "gemma4", None, id="count-below-2"
        ),
    ],
)
def test_loop_guard_of_the_strongest_source(
    asked_for: LoopGuard | None, live: LoopGuard | None, family: str, expected: LoopGuard | None
) -> None:
    assert loop_guard(asked(loop=asked_for, settings=settings(loop=live)), family) == expected


# Lazy grammars, and thinking that may be ended

LAZY = OutputFormat(
    kind=OutputKind.GBNF,
    source='root ::= "a"',
    param="grammar",
    triggers=(Trigger(kind=TriggerKind.WORD, value="<a>"),),
)
LOOKED = (Looked(pattern=r"\<a\>"),)


@pytest.mark.parametrize(
    ("words", "waits"), [pytest.param(THINKS, True, id="thinks"), pytest.param((), False, id="not")]
)
def test_a_lazy_grammar_has_its_triggers(words: tuple[str, ...], waits: bool) -> None:
    found = watch(words=words, output=LAZY)
    grammar = compiled(LAZY)
    assert found.constraint == Constraint(grammar=grammar, triggers=LOOKED, after_thinking=waits)
    assert (found.thinking is not None) is waits


def test_a_word_of_one_token_must_be_preserved() -> None:
    lazy = replace(LAZY, triggers=(Trigger(kind=TriggerKind.WORD, value="<think>"),))
    with pytest.raises(BadField) as error:
        watch(output=lazy)
    assert error.value.param == "grammar_triggers.0.value"
    found = watch(output=lazy, preserved=("<think>",))
    assert found.constraint is not None
    assert found.constraint.triggers[0].tokens == (THINK,)


def test_thinking_that_may_be_ended_is_watched() -> None:
    thinking = watch(is_controllable=True).thinking
    assert thinking is not None
    assert (thinking.budget, thinking.may_be_ended, thinking.is_open) == (-1, True, False)
    capped = watch(is_controllable=True, thinking_budget=4).thinking
    assert capped is not None
    assert (capped.budget, capped.may_be_ended) == (4, True)
    uncontrolled = watch(thinking_budget=4).thinking
    assert uncontrolled is not None
    assert not uncontrolled.may_be_ended


def test_nothing_can_be_ended_where_a_model_does_not_think() -> None:
    assert watch(words=(), is_controllable=True).thinking is None
