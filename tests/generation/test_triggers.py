"""Triggers of lazy grammars: what is refused, and what the worker is told to look for."""

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind, Trigger, TriggerKind
from mlxcel.core.steering import Trigger as Looked
from mlxcel.generation.triggers import check_triggers, looked_for
from mlxcel.generation.watch import check_form
from tests.generation.speaking import asked
from tests.text.thinkers import THINK, speaker

WORD, PATTERN, FULL = TriggerKind.WORD, TriggerKind.PATTERN, TriggerKind.PATTERN_FULL


def word(value: str, token: int | None = None) -> Trigger:
    return Trigger(kind=WORD, value=value, token=token)


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        pytest.param(Trigger(kind=PATTERN, value="("), "missing )", id="pattern"),
        pytest.param(Trigger(kind=FULL, value="a(?=b)"), "no look-around", id="look-ahead"),
        pytest.param(Trigger(kind=PATTERN, value=r"(a)\1"), "of RE2", id="back-reference"),
        pytest.param(Trigger(kind=PATTERN, value=""), "is empty", id="empty"),
        pytest.param(word(""), "is empty", id="empty-word"),
        pytest.param(word("a" * 4097), "is 4097 bytes long; at most 4096", id="long"),
        pytest.param(Trigger(kind=PATTERN, value="[ab]{900}{2}"), "of RE2", id="repeated"),
        pytest.param(Trigger(kind=PATTERN, value="(a{100}){11}"), "of RE2", id="repeats"),
        pytest.param(Trigger(kind=PATTERN, value=r"\p{L}{99}"), "too large", id="large"),
        pytest.param(word("\ud800"), "surrogate", id="surrogate"),
    ],
)
def test_what_cannot_be_looked_for_is_refused_before_the_queue(
    trigger: Trigger, words: str
) -> None:
    good = word("fine")
    output = OutputFormat(kind=OutputKind.GBNF, source='root ::= "a"', triggers=(good, trigger))
    with pytest.raises(BadField) as error:
        check_form(asked(output=output))
    assert error.value.param == "grammar_triggers.1.value"
    assert words in error.value.message


def test_a_token_trigger_needs_its_token() -> None:
    with pytest.raises(BadField) as error:
        check_triggers((Trigger(kind=TriggerKind.TOKEN, value="x"),))
    assert error.value.param == "grammar_triggers.0.token"


def test_all_together_are_bounded() -> None:
    some = (word("a" * 100),) * 4
    check_triggers(some)
    with pytest.raises(BadField, match="all expressions together") as error:
        check_triggers(some * 2)
    assert error.value.param == "grammar_triggers.4.value"
    with pytest.raises(BadField, match="65 entries; at most 64"):
        check_triggers((Trigger(kind=TriggerKind.TOKEN, token=1),) * 65)


@pytest.mark.parametrize(
    ("trigger", "looked"),
    [
        pytest.param(
            Trigger(kind=TriggerKind.TOKEN, token=7, value="x"), Looked(tokens=(7,)), id="token"
        ),
        pytest.param(word("<a>.é"), Looked(pattern=r"\<a\>\.é"), id="word"),
        pytest.param(word("ab", 7), Looked(tokens=(7,), pattern="ab"), id="word-and-token"),
        pytest.param(
            word("<think>"), Looked(tokens=(THINK,), pattern=r"\<think\>"), id="one-token"
        ),
        pytest.param(Trigger(kind=PATTERN, value="a.c"), Looked(pattern="a.c"), id="pattern"),
        pytest.param(
            Trigger(kind=FULL, value="a.c"), Looked(pattern="a.c", is_full=True), id="full"
        ),
    ],
)
def test_what_the_worker_looks_for(trigger: Trigger, looked: Looked) -> None:
    assert looked_for((trigger,), speaker(), {"<think>"}) == (looked,)


def test_a_word_of_one_token_must_be_preserved() -> None:
    with pytest.raises(BadField) as error:
        looked_for((word("ab"), word("<think>")), speaker(), {"</think>"})
    assert error.value.param == "grammar_triggers.1.value"
    assert "preserved_tokens must have '<think>'" in error.value.message
