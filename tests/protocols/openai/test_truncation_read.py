"""From a chat body to typical, top-n-sigma, XTC and the bias on tokens."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField
from tests.protocols.openai.reading import chat_read


def test_left_out_they_are_off() -> None:
    found = chat_read().request.sampling
    assert (found.typical_p, found.top_n_sigma, found.bias) == (1.0, 0.0, ())
    assert (found.xtc_probability, found.xtc_threshold, found.xtc_spared) == (0.0, 0.1, ())


@pytest.mark.parametrize(
    ("name", "sent", "used"),
    [
        pytest.param("typical_p", 1, 1.0, id="typical-off"),
        pytest.param("typical_p", 1e-9, 1e-9, id="typical-tiny"),
        pytest.param("top_n_sigma", 0, 0.0, id="sigma-off"),
        pytest.param("top_n_sigma", 1.5, 1.5, id="sigma"),
        pytest.param("top_n_sigma", 1e300, 1e6, id="sigma-huge"),
        pytest.param("xtc_probability", 1, 1.0, id="xtc-always"),
        pytest.param("xtc_probability", 0, 0.0, id="xtc-never"),
        pytest.param("xtc_threshold", 0.5, 0.5, id="threshold-highest"),
        pytest.param("xtc_threshold", 0, 0.0, id="threshold-lowest"),
    ],
)
def test_a_value_within_its_bounds_is_used(name: str, sent: float, used: float) -> None:
    assert getattr(chat_read(**{name: sent}).request.sampling, name) == used


@pytest.mark.parametrize(
    ("name", "sent", "rule"),
    [
        pytest.param("typical_p", 0, "wants a value above 0, got 0", id="typical-zero"),
        pytest.param("typical_p", -0.1, "wants a value above 0", id="typical-below"),
        pytest.param("typical_p", 1.01, "at most 1", id="typical-above"),
        pytest.param("typical_p", "x", "wants a number", id="typical-type"),
        pytest.param("top_n_sigma", -0.1, "at least 0", id="sigma-below"),
        pytest.param("top_n_sigma", True, "wants a number", id="sigma-type"),
        pytest.param("xtc_probability", -0.1, "at least 0", id="xtc-below"),
        pytest.param("xtc_probability", 1.01, "at most 1", id="xtc-above"),
        pytest.param("xtc_threshold", -0.1, "at least 0", id="threshold-below"),
        pytest.param("xtc_threshold", 0.51, "at most 0.5", id="threshold-above"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(name: str, sent: Any, rule: str) -> None:
    with pytest.raises(BadField, match=rule) as caught:
        chat_read(**{name: sent})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("sent", "bias"),
    [
        pytest.param({}, (), id="empty"),
        pytest.param({"7": 1}, ((7, 1.0),), id="integer"),
        pytest.param({"90": -100, "0": 2.5}, ((0, 2.5), (90, -100.0)), id="sorted-by-id"),
        pytest.param({"7": 1e300, "8": -1e300}, ((7, 1e4), (8, -1e4)), id="endless"),
        pytest.param({str(n): 1 for n in range(1024)}, None, id="as-many-as-allowed"),
    ],
)
def test_logit_bias(sent: dict[str, float], bias: tuple[tuple[int, float], ...] | None) -> None:
    expected = tuple((n, 1.0) for n in range(1024)) if bias is None else bias
    assert chat_read(logit_bias=sent).request.sampling.bias == expected


@pytest.mark.parametrize(
    ("sent", "rule"),
    [
        pytest.param([1], "wants an object", id="array"),
        pytest.param({"x": 1}, 'token ids as keys.*got "x"', id="word"),
        pytest.param({"-1": 1}, 'token ids as keys.*got "-1"', id="negative"),
        pytest.param({"1.0": 1}, 'token ids as keys.*got "1.0"', id="float"),
        pytest.param({"": 1}, "token ids as keys", id="empty-key"),
        pytest.param({"9" * 5000: 1}, "token ids as keys", id="endless-key"),
        pytest.param({"7": "1"}, 'wants a number for token 7, got "1"', id="text-value"),
        pytest.param({"7": True}, "wants a number for token 7, got true", id="boolean-value"),
        pytest.param({"7": None}, "wants a number for token 7, got null", id="null-value"),
        pytest.param({"7": 1, "07": 2}, "names token 7 twice", id="twice"),
        pytest.param({str(n): 1 for n in range(1025)}, "at most 1024 tokens", id="many"),
    ],
)
def test_a_logit_bias_that_cannot_be_used_is_refused(sent: Any, rule: str) -> None:
    with pytest.raises(BadField, match=rule) as caught:
        chat_read(logit_bias=sent)
    assert caught.value.param == "logit_bias"
