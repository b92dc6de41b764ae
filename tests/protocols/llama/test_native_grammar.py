"""Grammars, schemas and triggers of a native completion."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind, Trigger, TriggerKind
from mlxcel.core.settings import FixedDefaults
from tests.protocols.llama.reading import completion_read
from tests.protocols.samples import RULES

GRAMMAR = OutputFormat(kind=OutputKind.GBNF, source="root ::= [a-z]", param="grammar")
SCHEMA = OutputFormat(kind=OutputKind.JSON_SCHEMA, source='{"type":"object"}', param="json_schema")
SERVER = OutputFormat(kind=OutputKind.GBNF, source='root ::= "s"', param="grammar")
WORD = {"type": 1, "value": "<t>"}


def output(**fields: Any) -> OutputFormat | None:
    rules = replace(RULES, fixed=FixedDefaults(output=SERVER))
    return completion_read(rules=rules, **fields).request.output


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        pytest.param({}, SERVER, id="server"),
        pytest.param({"grammar": GRAMMAR.source}, GRAMMAR, id="grammar"),
        pytest.param({"json_schema": {"type": "object"}}, SCHEMA, id="schema"),
        pytest.param({"grammar": GRAMMAR.source, "json_schema": {}}, GRAMMAR, id="grammar-wins"),
        pytest.param({"grammar": "", "json_schema": {"type": "object"}}, None, id="empty-wins"),
        pytest.param({"grammar": ""}, None, id="empty-lifts-the-server's"),
        pytest.param({"grammar": 7}, SERVER, id="ignored"),
        pytest.param({"grammar": 7, "json_schema": {"type": "object"}}, SCHEMA, id="ignored-too"),
    ],
)
def test_what_the_answer_must_look_like(sent: dict[str, Any], found: OutputFormat | None) -> None:
    assert output(**sent) == found


def test_a_schema_far_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(BadField, match="json_schema: is nested far too deep"):
        completion_read(json_schema=deep)


def test_a_lazy_grammar_binds_from_its_triggers_on() -> None:
    sent = [
        {"type": 0, "value": "<t>", "token": 7},
        WORD,
        {"type": 2, "value": "a+", "token": None},
        {"type": 3, "value": "b+"},
    ]
    found = output(grammar=GRAMMAR.source, grammar_lazy=True, grammar_triggers=sent)
    assert found == replace(
        GRAMMAR,
        triggers=(
            Trigger(kind=TriggerKind.TOKEN, value="<t>", token=7),
            Trigger(kind=TriggerKind.WORD, value="<t>"),
            Trigger(kind=TriggerKind.PATTERN, value="a+"),
            Trigger(kind=TriggerKind.PATTERN_FULL, value="b+"),
        ),
    )


def test_triggers_are_for_lazy_grammars() -> None:
    assert output(grammar=GRAMMAR.source, grammar_triggers=[WORD]) == GRAMMAR
    assert output(grammar="", grammar_lazy=True, grammar_triggers=[WORD]) is None
    lazy = output(grammar_lazy=True, grammar_triggers=[WORD])
    assert lazy is not None
    assert (lazy.source, len(lazy.triggers)) == (SERVER.source, 1)


@pytest.mark.parametrize(
    ("param", "sent"),
    [
        pytest.param("grammar_triggers", {"grammar_lazy": True}, id="absent"),
        pytest.param(
            "grammar_triggers", {"grammar_lazy": True, "grammar_triggers": []}, id="empty"
        ),
        pytest.param("grammar_triggers", {"grammar_triggers": "x"}, id="no-array"),
        pytest.param("grammar_triggers.0", {"grammar_triggers": ["x"]}, id="no-object"),
        pytest.param("grammar_triggers.0.type", {"grammar_triggers": [{}]}, id="no-type"),
        pytest.param("grammar_triggers.0.type", {"grammar_triggers": [{"type": 4}]}, id="four"),
        pytest.param("grammar_triggers.0.type", {"grammar_triggers": [{"type": "1"}]}, id="text"),
        pytest.param("grammar_triggers.0.token", {"grammar_triggers": [{"type": 0}]}, id="token"),
        pytest.param("grammar_triggers.1.value", {"grammar_triggers": [WORD, {"type": 2}]}, id="v"),
        pytest.param("grammar_lazy", {"grammar_lazy": 1}, id="lazy"),
        pytest.param("preserved_tokens", {"preserved_tokens": ["x"] * 1025}, id="preserved"),
    ],
)
def test_triggers_that_cannot_be_used_are_named(param: str, sent: dict[str, Any]) -> None:
    with pytest.raises(BadField) as caught:
        completion_read(**sent)
    assert caught.value.param == param


def test_preserved_tokens_are_handed_on() -> None:
    assert completion_read(preserved_tokens=["<t>", ""]).request.preserved == ("<t>", "")
