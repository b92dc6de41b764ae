"""What a file of tokens belongs to: digests of the model and of its tokenizer, without reading
the weights."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

WEIGHTS = frozenset((".safetensors", ".gguf", ".npz", ".bin"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Digests in hex."""

    model: str
    """Of config.json and of the names and sizes of the weight files, wherever they lie."""
    tokenizer: str


def read_identity(folder: Path | None, name: str) -> Identity:
    """`name` stands for a model that has no folder. Raises OSError."""
    if folder is None:
        own = hashlib.sha256(f"no weights: {name}".encode()).hexdigest()
        return Identity(model=own, tokenizer=own)
    return Identity(model=_model(folder), tokenizer=_digest(folder / "tokenizer.json").hex())


def _model(folder: Path) -> str:
    made = hashlib.sha256(_digest(folder / "config.json"))
    for path in sorted(folder.iterdir()):
        if path.suffix in WEIGHTS:
            made.update(f"{path.name}\0{path.stat().st_size}\0".encode())
    return made.hexdigest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
