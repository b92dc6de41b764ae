"""Whether a model thinks, told from its vocabulary before anything is loaded."""

import json
from pathlib import Path

from mlxcel.core.think_marks import PAIRS, token_of


def thinks(folder: Path) -> bool:
    """Whether tokenizer.json knows a pair of markers. Looks for their texts: parsing megabytes
    would cost half a second. A folder without the file is told about elsewhere."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return False
    known = path.read_bytes()
    return any(all(_quoted(mark) in known for mark in pair) for pair in PAIRS)


def _quoted(marker: str) -> bytes:
    return json.dumps(token_of(marker)).encode()
