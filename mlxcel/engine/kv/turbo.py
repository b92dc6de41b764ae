"""Turbo: three or four bits a number after a random rotation (engine contract, cache 10).

A vector over its norm, its signs flipped at random and Hadamard-transformed, has coordinates near
N(0, 1/dim) whatever it was; each becomes the nearest of 8 or 16 fixed levels. (The scheme is that
of TurboQuant, Zandieh et al. 2025; the levels are Lloyd-Max's for a normal distribution.)
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import mlx.core as mx

MAGNITUDES = {
    3: (0.24509, 0.75601, 1.34391, 2.15195),
    4: (0.12840, 0.38805, 0.65676, 0.94234, 1.25623, 1.61805, 2.06902, 2.73259),
}
"""Levels for N(0, 1), by bits; each has a negative twin."""
PER_WORD = {3: 10, 4: 8}
"""Codes in an uint32."""
LARGEST = 65504.0
"""In float16."""


def is_power_of_two(dim: int) -> bool:
    return dim > 1 and dim & (dim - 1) == 0


class Turbo:
    """A code is the index of a magnitude, with the highest bit set below zero; the first code
    stands in the lowest bits of a word. What the levels are multiplied by is float16: the norm of
    the vector, but for the correction of `encode`."""

    arrays = 2

    def __init__(self, bits: int, dim: int, *, layer: int, side: str) -> None:
        """`dim` is a power of two. Layer and side fix the signs, for all files and versions."""
        assert is_power_of_two(dim)
        self.bits = bits
        self.dim = dim
        self._signs = mx.array(_signs(f"{layer}:{side}", dim), dtype=mx.float32)
        # Back by a matrix: on a CPU a fourth of the time of a transform and a product with signs.
        self._back = _hadamard(dim) * self._signs / dim
        magnitudes = MAGNITUDES[bits]
        self._midpoints = [(a + b) / 2 for a, b in pairwise(magnitudes)]
        self._negative = len(magnitudes)
        self._per_word = PER_WORD[bits]
        self._shifts = mx.arange(self._per_word, dtype=mx.uint32) * bits

    @property
    def name(self) -> str:
        return f"turbo{self.bits}"

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]:
        exact = vectors.astype(mx.float32)
        norm = _norm(exact)
        unit = exact / mx.where(norm == 0, 1.0, norm)
        # Of unit variance: the root of the dimension is in the transform's scale.
        rotated = mx.hadamard_transform(unit * self._signs, scale=1.0)
        words = self.pack(self.codes(rotated))
        # Levels are means of what they stand for, so vectors of them are a little too short, and
        # some by more than 3 %: the factor kept makes up for it.
        factor = norm * self.dim**0.5 / _norm(self.levels(words))
        return words, mx.minimum(factor, LARGEST).astype(mx.float16)

    def decode(self, parts: Sequence[mx.array], dtype: mx.Dtype) -> mx.array:
        words, factor = parts
        unit = self.levels(words) @ self._back
        return (unit * factor.astype(mx.float32)).astype(dtype)

    def codes(self, numbers: mx.array) -> mx.array:
        """The nearest level of each, uint32. Zero is the smallest positive one."""
        size = mx.abs(numbers)
        codes = mx.where(numbers < 0, self._negative, 0).astype(mx.uint32)
        for midpoint in self._midpoints:
            codes = codes + (size > midpoint)
        return codes

    def pack(self, codes: mx.array) -> mx.array:
        """`[..., dim]` to `[..., words]`."""
        *outer, dim = codes.shape
        words = -(-dim // self._per_word)
        if spare := words * self._per_word - dim:
            codes = mx.concatenate([codes, mx.zeros((*outer, spare), dtype=codes.dtype)], axis=-1)
        return mx.sum(codes.reshape(*outer, words, self._per_word) << self._shifts, axis=-1)

    def levels(self, words: mx.array) -> mx.array:
        """`[..., words]` to `[..., dim]`, by half words: fewer and wider rows of a larger table."""
        width = self.bits * self._per_word // 2
        halves = (words[..., None] >> mx.array([0, width], dtype=mx.uint32)) & (2**width - 1)
        levels = mx.take(_table(self.bits), halves, axis=0)
        return levels.reshape(*words.shape[:-1], -1)[..., : self.dim]


@cache
def _table(bits: int) -> mx.array:
    """The levels of the codes in half a word, `[half words, codes]`."""
    codes = PER_WORD[bits] // 2
    shifts = mx.arange(codes, dtype=mx.uint32) * bits
    words = mx.arange(2 ** (bits * codes), dtype=mx.uint32)
    magnitudes = MAGNITUDES[bits]
    levels = mx.array([*magnitudes, *(-m for m in magnitudes)], dtype=mx.float32)
    return levels[(words[:, None] >> shifts) & (2**bits - 1)]


def _hadamard(dim: int) -> mx.array:
    matrix = mx.ones((1, 1))
    while matrix.shape[0] < dim:
        top = mx.concatenate([matrix, matrix], axis=1)
        matrix = mx.concatenate([top, mx.concatenate([matrix, -matrix], axis=1)])
    return matrix


def _norm(vectors: mx.array) -> mx.array:
    return mx.sqrt(mx.sum(vectors * vectors, axis=-1, keepdims=True))


def _signs(label: str, dim: int) -> list[float]:
    """+1 or -1 of each coordinate, by the bits of a hash."""
    bits = hashlib.shake_128(f"mlxcel:turbo:v1:{label}".encode()).digest(-(-dim // 8))
    return [1.0 - 2.0 * (bits[at // 8] >> at % 8 & 1) for at in range(dim)]
