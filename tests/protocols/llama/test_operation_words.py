"""Bodies of /tokenize, /detokenize and /lora-adapters: whatever is sent is read or refused."""

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.core.errors import BadRequest
from mlxcel.generation.text_tools import TextTools
from mlxcel.protocols.llama.lora import read_scales
from mlxcel.protocols.llama.tokenizer import (
    detokenized_body,
    read_detokenize,
    read_tokenize,
    tokenized_body,
)
from mlxcel.text.tokenizer import byte_text_model

TEXT = TextTools(byte_text_model())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**64) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TOKENIZE = st.fixed_dictionaries(
    {},
    optional={
        "content": VALUES,
        "add_special": VALUES,
        "parse_special": VALUES,
        "with_pieces": VALUES,
    },
)


@settings(max_examples=50)
@given(TOKENIZE)
def test_tokenize_answers_or_refuses(body: dict[str, Any]) -> None:
    with contextlib.suppress(BadRequest):
        answer = tokenized_body(read_tokenize(body), TEXT)
        assert list(answer) == ["tokens"]


@given(st.fixed_dictionaries({}, optional={"tokens": VALUES | st.lists(st.integers(0, 262))}))
def test_detokenize_answers_or_refuses(body: dict[str, Any]) -> None:
    with contextlib.suppress(BadRequest):
        answer = detokenized_body(read_detokenize(body), TEXT)
        assert isinstance(answer["content"], str)


@given(VALUES)
def test_scales_are_read_or_refused(sent: object) -> None:
    with contextlib.suppress(BadRequest):
        scales = read_scales(sent)
        assert all(isinstance(adapter, int) for adapter in scales)


@given(st.text())
def test_a_text_comes_back_from_its_tokens(text: str) -> None:
    ids = tokenized_body(read_tokenize({"content": text}), TEXT)["tokens"]
    assert detokenized_body(ids, TEXT) == {"content": text}
    pieces = tokenized_body(read_tokenize({"content": text, "with_pieces": True}), TEXT)["tokens"]
    shown = (piece["piece"] for piece in pieces)
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in shown).decode() == text


def test_of_two_entries_for_one_adapter_the_later_counts() -> None:
    assert read_scales([{"id": 0, "scale": 1}, {"id": 0, "scale": 2}]) == {0: 2.0}
