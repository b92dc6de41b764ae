"""What the server decides at startup, under what a chat body says."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.sampling import AdaptiveP, DynamicTemperature, Mirostat
from mlxcel.core.settings import FixedDefaults
from tests.protocols.openai.reading import chat_read
from tests.protocols.samples import RULES

FIXED = FixedDefaults(
    typical_p=0.9,
    top_n_sigma=1.5,
    xtc_probability=0.5,
    xtc_threshold=0.2,
    mirostat_version=2,
    temperature_span=0.5,
    names_adaptive=True,
    adaptive_target=0.6,
    bias=((3, 1.0), (9, float("-inf"))),
    ignore_eos=True,
    stop=("###",),
)


def request(fixed: FixedDefaults = FIXED, **fields: Any) -> Any:
    return chat_read(rules=replace(RULES, fixed=fixed), **fields).request


def test_left_out_fields_come_from_the_server() -> None:
    found = request()
    sampling = found.sampling
    assert (sampling.typical_p, sampling.top_n_sigma) == (0.9, 1.5)
    assert (sampling.xtc_probability, sampling.xtc_threshold) == (0.5, 0.2)
    assert sampling.mirostat == Mirostat(version=2, rate=0.1, target=5.0)
    assert sampling.adaptive == AdaptiveP(target=0.6, decay=0.9)
    assert sampling.dynamic_temperature == DynamicTemperature(span=0.5, exponent=1.0)
    assert (sampling.bias, found.stop, found.ignore_eos) == (FIXED.bias, ("###",), True)


def test_without_such_defaults_all_of_it_is_off() -> None:
    found = request(FixedDefaults())
    sampling = found.sampling
    assert (sampling.mirostat, sampling.dynamic_temperature, sampling.adaptive) == (None,) * 3
    assert (sampling.typical_p, sampling.top_n_sigma, sampling.bias) == (1.0, 0.0, ())
    assert (found.stop, found.ignore_eos) == ((), False)


def test_sent_fields_win() -> None:
    found = request(
        typical_p=1, top_n_sigma=0, xtc_probability=0, xtc_threshold=0, ignore_eos=False, stop="x"
    )
    sampling = found.sampling
    assert (sampling.typical_p, sampling.top_n_sigma) == (1.0, 0.0)
    assert (sampling.xtc_probability, sampling.xtc_threshold) == (0.0, 0.0)
    assert (found.ignore_eos, found.stop) == (False, ("x",))


def test_a_request_that_ignores_the_end_says_so() -> None:
    assert request(FixedDefaults(), ignore_eos=True).ignore_eos
    with pytest.raises(BadField, match="ignore_eos: wants a boolean, got integer 1"):
        request(ignore_eos=1)


@pytest.mark.parametrize(
    "sent", [None, [], "", [""]], ids=["null", "empty-list", "empty-string", "empty-strings"]
)
def test_stop_strings_of_the_server_are_for_requests_that_have_none(sent: Any) -> None:
    assert request(stop=sent).stop == ("###",)


@pytest.mark.parametrize(
    ("sent", "bias"),
    [
        pytest.param({}, FIXED.bias, id="none"),
        pytest.param({"3": 2}, ((3, 3.0), (9, float("-inf"))), id="added"),
        pytest.param({"9": 100}, ((3, 1.0), (9, float("-inf"))), id="banned-stays-banned"),
        pytest.param({"5": -1}, ((3, 1.0), (5, -1.0), (9, float("-inf"))), id="beside"),
        pytest.param({"3": 1e4}, ((3, 1e4), (9, float("-inf"))), id="bounded"),
    ],
)
def test_a_bias_is_added_to_that_of_the_server(
    sent: dict[str, float], bias: tuple[tuple[int, float], ...]
) -> None:
    assert request(logit_bias=sent).sampling.bias == bias


def test_several_biases_of_one_token_are_added() -> None:
    assert request(FixedDefaults(bias=((4, 1.0), (4, 2.0)))).sampling.bias == ((4, 3.0),)


def test_an_endless_bias_of_the_server_is_bounded() -> None:
    assert request(FixedDefaults(bias=((4, float("inf")),))).sampling.bias == ((4, 1e4),)
