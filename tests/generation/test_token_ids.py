"""What the vocabulary adds to the sampling of a request."""

import math
from typing import Any

import pytest

from mlxcel.core.byte_vocab import END, EOS, VOCAB_SIZE
from mlxcel.core.errors import BadField
from mlxcel.core.sampling import Dry, SamplingParams
from mlxcel.generation import token_ids
from mlxcel.generation.token_ids import with_token_ids
from mlxcel.text.tokenizer import byte_text_model

TEXT = byte_text_model()
DRY = Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64)


def resolved(
    breakers: tuple[str, ...] = ("\n", ":"), vocab_size: int = VOCAB_SIZE, **sampling: Any
) -> SamplingParams:
    return with_token_ids(
        SamplingParams(**sampling), text=TEXT, breakers=breakers, vocab_size=vocab_size
    )


def breakers_of(sampling: SamplingParams) -> tuple[int, ...]:
    assert sampling.dry is not None
    return sampling.dry.breakers


def test_nothing_is_added_to_what_is_off() -> None:
    assert resolved(temperature=0.5) == SamplingParams(temperature=0.5)


def test_breaking_texts_become_token_ids() -> None:
    assert breakers_of(resolved(dry=DRY)) == (10, 58)
    assert breakers_of(resolved(dry=DRY, breakers=())) == ()


def test_ids_of_the_request_stay() -> None:
    own = Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64, breakers=(7, 263))
    assert breakers_of(resolved(dry=own, breakers=())) == (7, 263)


def test_xtc_spares_newlines_and_ends() -> None:
    assert resolved(xtc_probability=0.1).xtc_spared == (10, EOS, END)


def test_ids_without_a_logit_are_left_out() -> None:
    found = resolved(dry=DRY, xtc_probability=0.1, vocab_size=20)
    assert (breakers_of(found), found.xtc_spared) == ((10,), (10,))


@pytest.mark.parametrize("token", [0, 262, 263], ids=["first", "last-known", "last-logit"])
def test_bias_on_a_token_of_the_model_is_taken(token: int) -> None:
    assert resolved(bias=((token, 1.0),)).bias == ((token, 1.0),)


@pytest.mark.parametrize("token", [264, 2**33], ids=["one-too-far", "beyond-int32"])
def test_bias_on_a_token_that_is_not_there_is_refused(token: int) -> None:
    rule = f"logit_bias: token {token} is not in the vocabulary, whose ids end at 263"
    with pytest.raises(BadField, match=rule):
        resolved(bias=((1, 1.0), (token, 1.0)))


def test_breaker_that_is_not_there_is_refused() -> None:
    own = Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64, breakers=(264,))
    with pytest.raises(BadField, match="dry_sequence_breakers: token 264 is not in"):
        resolved(dry=own)


def biased(*texts: tuple[str, float], vocab_size: int = VOCAB_SIZE, **sampling: Any) -> Any:
    found = with_token_ids(
        SamplingParams(**sampling), text=TEXT, breakers=(), vocab_size=vocab_size, biased=texts
    )
    return found.bias


def test_every_token_of_a_text_is_biased() -> None:
    assert biased(("ba", 1.5)) == ((97, 1.5), (98, 1.5))


def test_a_bias_by_text_comes_on_top_of_one_by_id() -> None:
    assert biased(("a", 1.5), bias=((97, 1.0), (99, -1.0))) == ((97, 2.5), (99, -1.0))
    assert biased(("a", 100.0), bias=((97, -math.inf),)) == ((97, -math.inf),)
    assert biased(("a", 1e4), bias=((97, 1e4),)) == ((97, 1e4),)


def test_words_of_special_tokens_are_plain_text() -> None:
    assert EOS not in dict(biased(("<|eos|>", 1.0)))
    assert ord("<") in dict(biased(("<|eos|>", 1.0)))


def test_tokens_of_a_text_without_a_logit_are_left_out() -> None:
    assert biased(("\na", 1.0), vocab_size=20) == ((10, 1.0),)


def test_texts_of_too_many_tokens_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_ids, "BIASED", 3)
    assert len(biased(("abc", 1.0))) == 3
    with pytest.raises(BadField, match=r"logit_bias: wants at most 3 tokens.*got 4"):
        biased(("abcd", 1.0))
