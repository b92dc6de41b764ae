"""The defaults that are set at startup, as typed values."""

import math
from typing import Any

import pytest

from mlxcel.core.sampling import AdaptiveP, DynamicTemperature, Mirostat
from mlxcel.core.settings import FixedDefaults
from mlxcel.http.options import fixed_defaults
from tests.http.site import SAMPLING


def adaptive(named: bool, target: float | None) -> dict[str, Any]:
    return {"named": named, "target": target, "decay": 0.8}


ADAPTIVE: list[tuple[str, bool, float | None, dict[str, Any]]] = [
    ("on", True, 0.0, {"adaptive": AdaptiveP(target=0.0, decay=0.8)}),
    ("not-named", False, 0.5, {}),
    ("null", True, None, {}),
    ("below-zero", True, -1.0, {}),
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
            {"mirostat": Mirostat(version=2, rate=0.2, target=4.0)},
            id="mirostat",
        ),
        pytest.param({"mirostat": {"mode": 0, "eta": 0.2, "tau": 4.0}}, {}, id="mirostat-off"),
        pytest.param(
            {"dynatemp": {"range": 0.5, "exponent": 2.0}},
            {"dynamic_temperature": DynamicTemperature(span=0.5, exponent=2.0)},
            id="dynatemp",
        ),
        pytest.param({"dynatemp": {"range": 0.0, "exponent": 2.0}}, {}, id="dynatemp-off"),
        *(
            pytest.param({"adaptive": adaptive(named, target)}, found, id=f"adaptive-{name}")
            for name, named, target, found in ADAPTIVE
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
