"""The forms a language bias is written in, and what is said of one that cannot be used."""

import json
import math
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.language import CODES, from_config, from_file, parse_list, to_config
from mlxcel.core.settings import LanguageBias

PAGE = """\
policy: conservative
bias:
  ja: -5.0
  zh: "-inf"
exceptions:
  include_special: false
  include_numeric: false
  include_punctuation: false
  include_byte_fragments: false
"""
BIAS = LanguageBias(bias=(("ja", -5.0), ("zh", -math.inf)))


def from_yaml(text: str) -> LanguageBias:
    return from_file(yaml.safe_load(text))


def test_the_list_of_the_page() -> None:
    assert parse_list("ja=-5,zh=-inf") == BIAS.bias


def test_the_file_of_the_page() -> None:
    assert from_yaml(PAGE) == BIAS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("inf", math.inf, id="inf"),
        pytest.param("+inf", math.inf, id="plus-inf"),
        pytest.param("-INF", -math.inf, id="any-case"),
        pytest.param(" 2.5e-1 ", 0.25, id="exponent-and-spaces"),
        pytest.param(".5", 0.5, id="no-leading-zero"),
        pytest.param("-0", 0.0, id="zero"),
    ],
)
def test_numbers_of_a_list(text: str, value: float) -> None:
    assert parse_list(f"ko={text}") == (("ko", value),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("ja", "'ja' has no =", id="missing-equals"),
        pytest.param("", "has no =", id="nothing"),
        pytest.param("ja=1,", "has no =", id="comma-at-the-end"),
        pytest.param("=-5", "language code is empty", id="empty-code"),
        pytest.param("ja=", "the bias of ja is empty", id="empty-value"),
        pytest.param("fr=1", "'fr' is no language code; known: ja, zh, ko", id="unknown-code"),
        pytest.param("ja=1,ko=2,JA=3", "ja is named twice", id="duplicate-code"),
        pytest.param("ja=nan", "bias of ja must be a number, inf or -inf, not 'nan'", id="nan"),
        pytest.param("ja=1_0", "must be a number", id="python-number"),
        pytest.param("ja=five", "must be a number", id="word"),
        pytest.param("ja=1=2", "must be a number", id="two-equals"),
    ],
)
def test_a_list_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_list(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("bias: {ja: 1}\nlevel: 3\n", "unknown key 'level'", id="unknown-key"),
        pytest.param("exceptions: {include_all: true}\n", "'include_all'", id="unknown-exception"),
        pytest.param("bias: {ja: .nan}\n", "not nan", id="nan"),
        pytest.param("bias: {ja: 1, JA: 2}\n", "ja is named twice", id="duplicate-in-other-case"),
        pytest.param("bias: {fr: 1}\n", "'fr' is no language code", id="unknown-code"),
        pytest.param("bias: {true: 1}\n", "True is no language code", id="boolean-code"),
        pytest.param("bias: {ja: true}\n", "not True", id="boolean-value"),
        pytest.param("bias: {ja: }\n", "not None", id="empty-value"),
        pytest.param("bias: {'': 1}\n", "language code is empty", id="empty-code"),
        pytest.param("bias: [ja]\n", "must map language codes", id="list-for-bias"),
        pytest.param("policy: loose\n", "conservative or strict, not 'loose'", id="policy"),
        pytest.param("exceptions: {include_special: 1}\n", "true or false", id="number-for-flag"),
        pytest.param("ja=-5\n", "must be an object", id="not-a-mapping"),
        pytest.param("", "must be an object", id="empty"),
    ],
)
def test_a_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        from_yaml(text)


def test_a_file_keeps_the_order_and_every_key() -> None:
    text = "policy: strict\nbias: {zh: -.inf, ja: 2}\nexceptions: {include_numeric: true}\n"
    assert from_yaml(text) == LanguageBias(
        bias=(("zh", -math.inf), ("ja", 2.0)), is_strict=True, include_numeric=True
    )


def test_the_setting_of_the_page() -> None:
    value = {
        "bias_set": {"ordered": [["ja", -5.0]]},
        "policy": "Conservative",
        "exceptions": {
            "include_special": False,
            "include_numeric": False,
            "include_punctuation": False,
            "include_byte_fragments": False,
        },
        "rebuild_cache": False,
    }
    read = from_config(value)
    assert read == LanguageBias(bias=(("ja", -5.0),))
    assert to_config(read) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param({"bias": {}}, "unknown key 'bias'", id="unknown-key"),
        pytest.param({"bias_set": {}}, "must hold a list", id="no-order"),
        pytest.param({"bias_set": {"ordered": [["ja"]]}}, "pairs", id="no-value"),
        pytest.param({"bias_set": {"ordered": ["ja"]}}, "pairs", id="not-a-pair"),
        pytest.param({"bias_set": {"ordered": [["ja", "x"]]}}, "not 'x'", id="word"),
        pytest.param({"bias_set": {"ordered": [["ja", 1], ["ja", 1]]}}, "twice", id="duplicate"),
        pytest.param({"policy": 1}, "policy must be", id="policy"),
        pytest.param({"rebuild_cache": "yes"}, "true or false", id="rebuild"),
    ],
)
def test_a_setting_is_refused(value: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_config(value)


@given(
    st.builds(
        LanguageBias,
        bias=st.lists(
            st.tuples(st.sampled_from(CODES), st.floats(allow_nan=False)),
            unique_by=lambda pair: pair[0],
        ).map(tuple),
        is_strict=st.booleans(),
        include_special=st.booleans(),
        include_numeric=st.booleans(),
        include_punctuation=st.booleans(),
        include_byte_fragments=st.booleans(),
    )
)
def test_a_setting_comes_back_from_json(bias: LanguageBias) -> None:
    text = json.dumps(to_config(bias), allow_nan=False)
    assert from_config(json.loads(text)) == bias


@given(st.text())
def test_any_list_is_read_or_refused(text: str) -> None:
    try:
        pairs = parse_list(text)
    except ValueError:
        return
    assert all(code in CODES and not math.isnan(value) for code, value in pairs)
