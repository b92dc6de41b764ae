"""The classified vocabulary as a file: `<cache dir>/tokenizer-scripts/<hash>`.

The hash is over the tokenizer and the way it is classified. A file that is damaged is written
anew; one that cannot be written costs a second at the next start, and a line in the log.
"""

import hashlib
import logging
import tempfile
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mlxcel.text.tokenizer import TextModel

log = logging.getLogger(__name__)

FOLDER = "tokenizer-scripts"
VERSION = "1"
"""Of the classification. Raise it with every change of what a token is counted as."""

TOKEN = np.dtype([("letters", "<u2"), ("numerals", "<u2"), ("punctuation", "<u2"), ("flags", "u1")])
DIGEST = hashlib.sha256().digest_size

Tokens = np.ndarray[Any, Any]


def kept_tokens(
    text: TextModel,
    cache_dir: Path | None,
    classify: Callable[[TextModel], Tokens],
    *,
    rebuild: bool = False,
) -> Tokens:
    """One `TOKEN` per id. Without `cache_dir` nothing is kept."""
    if cache_dir is None:
        return classify(text)
    path = cache_dir / FOLDER / _hash(text)
    tokens = None if rebuild else _load(path, text.vocabulary.size)
    if tokens is None:
        tokens = classify(text)
        _store(path, tokens)
    return tokens


def _hash(text: TextModel) -> str:
    known = f"{VERSION} {unicodedata.unidata_version} {text.vocabulary._tokenizer.to_str()}"
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()


def _load(path: Path, size: int) -> Tokens | None:
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, packed = stored[:DIGEST], stored[DIGEST:]
    if hashlib.sha256(packed).digest() == digest:
        tokens: Tokens = np.frombuffer(zlib.decompress(packed), TOKEN)
        if len(tokens) == size:
            return tokens
    log.warning("%s is damaged and is built again", path)
    return None


def _store(path: Path, tokens: Tokens) -> None:
    """In one step, so that two servers that start together do no harm."""
    packed = zlib.compress(tokens.tobytes())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(packed).digest() + packed)
        Path(file.name).replace(path)
    except OSError as why:
        log.warning("the language index cannot be kept at %s: %s", path, why)
