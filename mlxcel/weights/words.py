"""The tokens of a checkpoint, by their ids."""

import json
from pathlib import Path
from typing import Any


def words_of(tokenizer_file: Path) -> dict[str, int]:
    """Of a `tokenizer.json`, added tokens included."""
    file: dict[str, Any] = json.loads(tokenizer_file.read_text(encoding="utf-8"))
    vocab = file["model"]["vocab"]
    # Unigram models list their words with scores.
    words = vocab if isinstance(vocab, dict) else {word: n for n, (word, _) in enumerate(vocab)}
    return words | {token["content"]: token["id"] for token in file.get("added_tokens") or ()}
