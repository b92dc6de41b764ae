"""Masks as the sampler gets them."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from mlxcel.core.byte_vocab import END, EOS, VOCAB_SIZE
from mlxcel.core.errors import GenerationFailed
from mlxcel.core.steering import Constraint
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.masks import bits, fill
from mlxcel.engine.constraint.matcher import Matcher


@pytest.mark.parametrize("vocab", [32, 33, 100, 264])
def test_bits_are_the_words(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    wanted = rng.integers(0, 2, (3, vocab)).astype(bool)
    width = -(-vocab // 32)
    padded = np.pad(wanted, ((0, 0), (0, 32 * width - vocab)))
    words = np.packbits(padded, axis=1, bitorder="little").view(np.uint32)
    mask = bits(list(words), vocab)
    assert mask.dtype == mx.bool_
    assert np.array_equal(np.array(mask), wanted)


def test_a_row_without_a_mask_may_say_anything() -> None:
    words: list[NDArray[np.uint32] | None] = [None, np.array([0b101, 0], np.uint32)]
    mask = np.array(bits(words, 40))
    assert mask[0].all()
    assert np.flatnonzero(mask[1]).tolist() == [0, 2]


def matchers(folder: Path, count: int) -> list[Matcher]:
    compiler = Compiler(folder / "tokenizer.json", VOCAB_SIZE)
    grammars = [f'start: "{"abcdefghijkl"[n]}" /[0-9]*/' for n in range(count)]
    return [compiler.matcher(Constraint(grammar=text), (EOS, END)) for text in grammars]


@pytest.mark.parametrize("count", [0, 1, 7, 12])
def test_filled_together_as_one_by_one(tiny: Path, count: int) -> None:
    together, alone = matchers(tiny, count), matchers(tiny, count)
    fill(together)
    for one, other in zip(together, alone, strict=True):
        assert np.array_equal(one.allowed(), other.allowed())
    for place, matcher in enumerate(together):
        matcher.accept(ord("abcdefghijkl"[place]))
    fill(together)
    for matcher in together:
        assert matcher.is_filled is (count == 12)  # fewer are not worth the threads
        assert matcher.allows(ord("7"))
        assert matcher.allows(EOS)


def test_one_that_fails_leaves_the_others_be(tiny: Path) -> None:
    rows = matchers(tiny, 9)
    with pytest.raises(GenerationFailed):
        rows[4].accept(ord("?"))
    fill(rows)
    assert all(rows[n].allows(ord("abcd"[n])) for n in range(4))
    with pytest.raises(GenerationFailed):
        rows[4].allowed()


def test_one_without_a_token_to_say_is_told_by_itself(tiny: Path) -> None:
    compiler = Compiler(tiny / "tokenizer.json", 100)  # no logit for "x"
    grammars = ['start: "a"'] * 8 + ['start: "x"']
    rows = [compiler.matcher(Constraint(grammar=text), ()) for text in grammars]
    fill(rows)
    assert rows[0].allows(ord("a"))
    with pytest.raises(GenerationFailed, match="no token can continue"):
        rows[8].allowed()
