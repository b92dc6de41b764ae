"""KV as MLX has it and as threads and files have it: numpy arrays.

numpy has no bfloat16: such an array is taken as the unsigned integers that it consists of.
"""

import math
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxcel.engine.cache.segment import Layers, Segment

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Sheet = tuple[str, tuple[int, ...]]
"""An array's MLX type, by name, and its shape."""
Plain = tuple[tuple[Array, ...], ...]
Sheets = tuple[tuple[Sheet, ...], ...]

STORED: dict[str, tuple[str, type[np.generic]]] = {
    "bool": ("BOOL", np.bool_),
    "uint8": ("U8", np.uint8),
    "uint16": ("U16", np.uint16),
    "uint32": ("U32", np.uint32),
    "uint64": ("U64", np.uint64),
    "int8": ("I8", np.int8),
    "int16": ("I16", np.int16),
    "int32": ("I32", np.int32),
    "int64": ("I64", np.int64),
    "float16": ("F16", np.float16),
    "bfloat16": ("U16", np.uint16),
    "float32": ("F32", np.float32),
}
"""By MLX type: what a safetensors file and numpy call the type that is stored."""


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class Loaded:
    """A run as it was read: MLX's memory, in the types that are stored."""

    file: str
    tokens: int
    layers: Layers
    sheets: Sheets


def sheets_of(layers: Layers) -> Sheets:
    return tuple(tuple((_name(part.dtype), part.shape) for part in layer) for layer in layers)


def nbytes_of(sheet: Sheet) -> int:
    name, shape = sheet
    return math.prod(shape) * np.dtype(STORED[name][1]).itemsize


def outgoing(layers: Layers) -> Plain:
    """Views on the same memory that other threads may read: evaluated first, so that no thread
    but the tick's ever runs a graph."""
    views = [[_viewed(part) for part in layer] for layer in layers]
    mx.eval(views)
    return tuple(tuple(np.asarray(part) for part in layer) for layer in views)


def taken(part: Array) -> mx.array:
    """A copy in MLX's memory. On any thread: no graph and no stream has to do with it (mlx 0.32).
    Done here, it costs the tick nothing: it takes as long as the reading itself."""
    return mx.array(part)


def arrived(loaded: Loaded) -> Segment:
    """On the tick."""
    layers = tuple(
        tuple(_typed(part, name) for part, (name, _) in zip(parts, sheets, strict=True))
        for parts, sheets in zip(loaded.layers, loaded.sheets, strict=True)
    )
    return Segment(layers, loaded.tokens)


def _viewed(part: mx.array) -> mx.array:
    return part.view(mx.uint16) if part.dtype == mx.bfloat16 else part


def _typed(part: mx.array, name: str) -> mx.array:
    return part.view(mx.bfloat16) if name == "bfloat16" else part


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")
