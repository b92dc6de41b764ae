"""What numbers of KV are kept as: a codec makes arrays of vectors, and vectors of arrays.

A codec works on each vector `[..., tokens, dim]` by itself, so that what is kept of a token does
not depend on its neighbours, on the chunk it was read in or on the batch it decodes in. All its
arrays are `[..., tokens, any]`; zeros in all of them are a vector of zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

Parts = Sequence[mx.array]
INT8_MAX = 127.0
AFFINE_GROUPS = (32, 64, 128)
"""The sizes `mx.quantize` knows."""


class Codec(Protocol):
    @property
    def name(self) -> str:
        """Says all that one must know to read the arrays; files carry it."""
        ...

    @property
    def arrays(self) -> int:
        """How many there are."""
        ...

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]: ...

    def decode(self, parts: Parts, dtype: mx.Dtype) -> mx.array: ...


@dataclass(frozen=True, slots=True)
class Plain:
    """As it is."""

    name = "plain"
    arrays = 1

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]:
        return (vectors,)

    def decode(self, parts: Parts, dtype: mx.Dtype) -> mx.array:
        return parts[0]


@dataclass(frozen=True, slots=True)
class Int8:
    """Eight bits a number and the largest magnitude of each vector, over 127, in float16."""

    name = "int8"
    arrays = 2

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]:
        exact = vectors.astype(mx.float32)
        scale = (mx.max(mx.abs(exact), axis=-1, keepdims=True) / INT8_MAX).astype(mx.float16)
        # By the scale that is kept; rounding it down may take the largest number beyond 127.
        steps = mx.round(exact / _not_zero(scale.astype(mx.float32)))
        return mx.clip(steps, -INT8_MAX, INT8_MAX).astype(mx.int8), scale

    def decode(self, parts: Parts, dtype: mx.Dtype) -> mx.array:
        codes, scale = parts
        return codes.astype(dtype) * scale.astype(dtype)


@dataclass(frozen=True, slots=True)
class Affine:
    """Groups of numbers with a scale and a bias each: `mx.quantize`."""

    bits: int
    group: int
    arrays = 3

    @property
    def name(self) -> str:
        return f"affine{self.bits}/{self.group}"

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]:
        codes, scales, biases = mx.quantize(vectors, group_size=self.group, bits=self.bits)
        return codes, scales, biases

    def decode(self, parts: Parts, dtype: mx.Dtype) -> mx.array:
        codes, scales, biases = parts
        return mx.dequantize(codes, scales, biases, group_size=self.group, bits=self.bits).astype(
            dtype
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCodec:
    """Both sides of one layer. Its arrays are those of the keys, then those of the values."""

    keys: Codec
    values: Codec
    recent: int = 0
    """So many of a row's newest values are kept as they are besides; keys are plain then."""
    recent_dim: int = 0
    """Their size."""

    @property
    def name(self) -> str:
        return f"{self.keys.name}+{self.values.name}"

    def encode(self, keys: mx.array, values: mx.array) -> tuple[mx.array, ...]:
        return *self.keys.encode(keys), *self.values.encode(values)

    def decode(self, parts: Parts, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
        until = self.keys.arrays
        return self.keys.decode(parts[:until], dtype), self.values.decode(parts[until:], dtype)


def _not_zero(scale: mx.array) -> mx.array:
    """A vector of zeros has no scale; whatever divides it, its codes are 0."""
    return mx.where(scale == 0, 1.0, scale)
