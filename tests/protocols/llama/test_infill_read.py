"""From the body of /infill to a request."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField, NotSupported
from mlxcel.core.request import InfillPrompt
from tests.protocols.llama.reading import completion_read, infill_read
from tests.protocols.samples import RULES


def test_a_gap_is_read() -> None:
    sent = [{"filename": "util.py", "text": "X = 1\n"}, {"text": "Y"}]
    prompt = infill_read(prompt="a, ", input_extra=sent).request.prompt
    assert prompt == InfillPrompt(
        prefix="def f(",
        suffix="): pass",
        text="a, ",
        extra=(("util.py", "X = 1\n"), ("tmp", "Y")),
    )


def test_the_rest_is_as_for_a_completion() -> None:
    sent: dict[str, Any] = {"temperature": 0, "n_predict": 3, "stop": "\n", "n_probs": 1, "seed": 5}
    gap, plain = infill_read(**sent).request, completion_read(**sent).request
    assert replace(gap, prompt=plain.prompt, id=plain.id) == plain


def test_null_is_as_good_as_absent() -> None:
    assert infill_read(prompt=None, input_extra=None) == infill_read()


@pytest.mark.parametrize(
    ("param", "sent"),
    [
        ("input_prefix", {"input_prefix": None}),
        ("input_prefix", {"input_prefix": 7}),
        ("input_suffix", {"input_suffix": None}),
        ("input_suffix", {"input_suffix": ["x"]}),
        ("prompt", {"prompt": [1]}),
        ("input_extra", {"input_extra": {}}),
        ("input_extra", {"input_extra": [{"text": ""}] * 1025}),
        ("input_extra.0", {"input_extra": ["x"]}),
        ("input_extra.0.text", {"input_extra": [{"filename": "a"}]}),
        ("input_extra.0.filename", {"input_extra": [{"filename": 7, "text": ""}]}),
    ],
)
def test_a_field_that_cannot_be_used_is_named(param: str, sent: dict[str, Any]) -> None:
    with pytest.raises(BadField) as caught:
        infill_read(**sent)
    assert caught.value.param == param


def test_fields_of_the_gap_come_before_the_others() -> None:
    with pytest.raises(BadField) as caught:
        infill_read(input_suffix=None, response_format={"type": "json_object"}, n_predict=-2)
    assert caught.value.param == "input_suffix"


MARKERS = ("<PRE>", "<SUF>", "<MID>", "<SEP>")


@pytest.mark.parametrize(
    ("param", "sent"),
    [
        ("input_prefix", {"input_prefix": "a<SUF>"}),
        ("input_suffix", {"input_suffix": "<SEP>"}),
        ("prompt", {"prompt": "b<MID>c"}),
        ("prompt", {"input_prefix": "a<PR", "prompt": "E>"}),
        ("input_extra.1.text", {"input_extra": [{"text": "ok"}, {"text": "<MID>"}]}),
        ("input_extra.0.filename", {"input_extra": [{"filename": "<PRE>", "text": ""}]}),
    ],
)
def test_a_marker_in_a_text_is_refused_before_the_rest(param: str, sent: dict[str, Any]) -> None:
    rules = replace(RULES, fim_words=MARKERS)
    later: dict[str, Any] = {"response_format": {"type": "json_object"}, "n_predict": -2}
    with pytest.raises(BadField, match="a marker of this model") as caught:
        infill_read(rules=rules, **sent, **later)
    assert caught.value.param == param
    assert infill_read(**sent), "markers of other models are text"


def test_a_model_without_the_markers_says_which_are_missing() -> None:
    rules = replace(RULES, lacks_fim=("suffix", "middle"))
    with pytest.raises(NotSupported, match="no marker for the suffix, middle"):
        infill_read(rules=rules, input_prefix=None)
    assert completion_read(rules=rules)
