"""The weight files of a folder: all there, none cut short. Reads their headers, no weights.

A safetensors file is a length of 8 bytes, a JSON header of that length, and the data.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from mlxcel.store.problems import ModelUnusable

INDEX = "model.safetensors.index.json"
PATTERN = "model*.safetensors"
"""The files mlx-lm reads; others (consolidated.safetensors) are copies of the same weights."""
OTHER_KINDS = (".gguf", ".bin", ".pt", ".pth")
LENGTH_BYTES = 8
HEADER_LIMIT_BYTES = 100_000_000
FETCH_AGAIN = "delete it and download or copy it again"


def check(folder: Path) -> None:
    """Raises ModelUnusable that names the file which is missing or cut short."""
    files = sorted(folder.glob(PATTERN))
    if missing := sorted(_indexed(folder) - {f.name for f in files}):
        raise ModelUnusable(
            folder, f"weights are missing: {', '.join(missing)} (listed in {INDEX}); fetch them"
        )
    if not files:
        raise ModelUnusable(folder, _no_weights(folder))
    for file in files:
        _check_header(file)


def _indexed(folder: Path) -> set[str]:
    index = folder / INDEX
    if not index.is_file():
        return set()
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as why:
        raise ModelUnusable(folder, f"{INDEX} cannot be read ({why}); {FETCH_AGAIN}") from why


def tensors(folder: Path) -> Iterator[str]:
    """Names of what the files hold, by the index where there is one. `check` has passed."""
    index = folder / INDEX
    if index.is_file():
        yield from json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return
    for file in sorted(folder.glob(PATTERN)):
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
            yield from json.loads(stream.read(length))


def _no_weights(folder: Path) -> str:
    others = sorted(f.name for f in folder.iterdir() if f.suffix in OTHER_KINDS)
    found = f"; {', '.join(others)} is of a kind that is not read" if others else ""
    return f"there is no {PATTERN} file{found}; an MLX or safetensors checkpoint is needed"


def _check_header(file: Path) -> None:
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(size, HEADER_LIMIT_BYTES):
            raise _cut_short(file, size)
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        end = LENGTH_BYTES + length + max((t["data_offsets"][1] for t in tensors), default=0)
    except (ValueError, KeyError, AttributeError, TypeError) as why:
        raise ModelUnusable(
            file.parent, f"{file.name} has no safetensors header; {FETCH_AGAIN}"
        ) from why
    if size < end:
        raise _cut_short(file, size, end)


def _cut_short(file: Path, size: int, end: int | None = None) -> ModelUnusable:
    should = "its header is not complete" if end is None else f"its header promises {end}"
    return ModelUnusable(
        file.parent, f"{file.name} is cut short: {size} bytes, but {should}; {FETCH_AGAIN}"
    )
