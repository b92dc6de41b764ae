"""What one file holds, and what it is called: where a run stands in the chain of its tokens, and
whose model made it. A name can be told from the run alone, and says its start and its owner."""

import hashlib
import re
from dataclasses import astuple, dataclass

from mlxcel.engine.cache.blocks import block_hashes
from mlxcel.engine.cache.key import CacheKey

VERSION = 1
"""Of the format. Files of another one are left alone, like those of another model."""
SUFFIX = ".kv.safetensors"
BLOCK = 16
"""Tokens a hash of the chain in a name covers; fixed, so that names outlive the setting."""
_NAME = re.compile(r"[0-9a-f]{40}-(\d{1,10})-([0-9a-f]{16})" + re.escape(SUFFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What must be equal for KV to mean the same."""

    model: str
    """Digest of the checkpoint."""
    kv_mode: str
    adapters: str

    def mark(self, kind: str) -> str:
        """16 hex digits that stand in each name; `kind` is the hash that names are made with."""
        parts = "\0".join((str(VERSION), kind, *astuple(self)))
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    key: CacheKey
    prefix: tuple[int, ...]
    """The tokens before it."""
    tokens: tuple[int, ...]

    @property
    def start(self) -> int:
        return len(self.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    file: str
    run: Run
    nbytes: int
    """Of the whole file."""


def file_name(run: Run, mark: str, kind: str) -> str:
    """Equal for equal runs of one identity, whichever server writes them."""
    chain = block_hashes((*run.prefix, *run.tokens), BLOCK, run.key.digest(), kind)
    return f"{chain[-1].hex()[:40]}-{run.start}-{mark}{SUFFIX}"


def start_and_mark(name: str) -> tuple[int, str] | None:
    """None: not a name of ours."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])
