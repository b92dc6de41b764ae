"""The defaults that are set at startup, as typed values."""

import math
from typing import Any

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.sampling import AdaptiveP, DynamicTemperature, Mirostat
from mlxcel.core.settings import FixedDefaults
from mlxcel.http.default_form import default_form
from mlxcel.http.options import fixed_defaults
from tests.http.site import SAMPLING


def adaptive(named: bool, target: float | None) -> dict[str, Any]:
    return {"named": named, "target": target, "decay": 0.8}


ADAPTIVE: list[tuple[str, bool, float | None, AdaptiveP | None]] = [
    ("on", True, 0.0, AdaptiveP(target=0.0, decay=0.8)),
    ("not-named", False, 0.5, None),
    ("null", True, None, None),
    ("below-zero", True, -1.0, None),
]


def test_the_defaults_of_the_section_ask_for_nothing() -> None:
    assert fixed_defaults(SAMPLING) == FixedDefaults()


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        pytest.param({"typical_p": 0.9}, {"typical_p": 0.9}, id="typical"),
        pytest.param({"top_n_sigma": 1.5}, {"top_n_sigma": 1.5}, id="sigma"),
        pytest.param({"top_n_sigma": 0}, {"top_n_sigma": 0.0}, id="sigma-zero"),
        pytest.param(
            {"xtc": {"probability": 0.5, "threshold": 0.2}},
            {"xtc_probability": 0.5, "xtc_threshold": 0.2},
            id="xtc",
        ),
        pytest.param(
            {"mirostat": {"mode": 2, "eta": 0.2, "tau": 4.0}},
            {"mirostat_version": 2, "mirostat_rate": 0.2, "mirostat_target": 4.0},
            id="mirostat",
        ),
        pytest.param(
            {"mirostat": {"mode": 0, "eta": 0.2, "tau": 4.0}},
            {"mirostat_rate": 0.2, "mirostat_target": 4.0},
            id="mirostat-off",
        ),
        pytest.param(
            {"dynatemp": {"range": 0.5, "exponent": 2.0}},
            {"temperature_span": 0.5, "temperature_exponent": 2.0},
            id="dynatemp",
        ),
        pytest.param(
            {"dynatemp": {"range": -1.0, "exponent": 2.0}},
            {"temperature_exponent": 2.0},
            id="dynatemp-off",
        ),
        pytest.param(
            {"logit_bias": [[7, 1], [9, -math.inf]]},
            {"bias": ((7, 1.0), (9, -math.inf))},
            id="bias",
        ),
        pytest.param({"ignore_eos": True}, {"ignore_eos": True}, id="ignore-eos"),
        pytest.param({"stop": ["a", "b"]}, {"stop": ("a", "b")}, id="stop"),
    ],
)
def test_fixed_defaults(changed: dict[str, Any], found: dict[str, Any]) -> None:
    assert fixed_defaults(SAMPLING | changed) == FixedDefaults(**found)


@pytest.mark.parametrize(
    ("named", "target", "found"),
    [pytest.param(*values, id=name) for name, *values in ADAPTIVE],
)
def test_adaptive_is_on_where_it_is_named_and_has_a_target(
    named: bool, target: float | None, found: AdaptiveP | None
) -> None:
    fixed = fixed_defaults(SAMPLING | {"adaptive": adaptive(named, target)})
    assert (fixed.adaptive, fixed.adaptive_decay) == (found, 0.8)


def test_what_a_number_switches_off_is_off() -> None:
    values = {"mode": 0, "eta": 0.2, "tau": 4.0}
    off = fixed_defaults(SAMPLING | {"mirostat": values, "dynatemp": {"range": 0, "exponent": 2}})
    assert (off.mirostat, off.dynamic_temperature) == (None, None)
    on = fixed_defaults(
        SAMPLING | {"mirostat": values | {"mode": 2}, "dynatemp": {"range": 1, "exponent": 2}}
    )
    assert on.mirostat == Mirostat(version=2, rate=0.2, target=4.0)
    assert on.dynamic_temperature == DynamicTemperature(span=1, exponent=2)


def test_what_stands_elsewhere_is_handed_on() -> None:
    form = default_form("root ::= [a-z]+", None)
    assert form == OutputFormat(kind=OutputKind.GBNF, source="root ::= [a-z]+", param="grammar")
    assert fixed_defaults(SAMPLING, output=form, keep=-1) == FixedDefaults(output=form, keep=-1)


def test_a_default_form_is_a_grammar_or_else_a_schema() -> None:
    schema = default_form(None, '{"type": "object"}')
    assert schema is not None
    assert (schema.kind, schema.param) == (OutputKind.JSON_SCHEMA, "json_schema")
    both = default_form("root ::= [a-z]+", "{}")
    assert both is not None
    assert both.kind is OutputKind.GBNF
    assert default_form(None, None) is None


@pytest.mark.parametrize(
    ("grammar", "schema", "says"),
    [
        pytest.param("root ::= (", None, "generation.grammar: not a GBNF grammar", id="grammar"),
        pytest.param(None, "{", "generation.json_schema: not valid JSON", id="schema"),
        pytest.param(None, "[]", "generation.json_schema: ", id="no-schema"),
    ],
)
def test_a_default_form_that_cannot_be_had_stops_the_start(
    grammar: str | None, schema: str | None, says: str
) -> None:
    with pytest.raises(StartupError, match=says):
        default_form(grammar, schema)
