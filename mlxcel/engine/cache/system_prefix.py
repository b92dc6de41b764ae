"""The KV of one run of system messages, which outlives the server (seed-kamiwaza, 4).

One slot: three files, of which the KV is written last, so that what is complete has all three.
Whatever goes wrong with them is logged, and the prompt is read as if there were none.
"""

import hashlib
import logging
import os
import re
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from mlxcel.core.cache import NO_DIGEST
from mlxcel.engine.cache.disk.files import Draft
from mlxcel.engine.cache.disk.run import Identity, Run
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.run_file import RunUnreadable, drafted, read_run, write_run
from mlxcel.engine.cache.segment import Segment

log = logging.getLogger(__name__)

NOBODY = CacheKey(
    session="", lora=(), template=NO_DIGEST, tool_choice="", tools=NO_DIGEST, media=NO_DIGEST
)
"""The tokens alone decide: the same ones have the same KV in every session."""


def token_hash(tokens: Sequence[int]) -> str:
    """SHA-256 over the ids as little-endian uint32, in hex."""
    return hashlib.sha256(struct.pack(f"<{len(tokens)}I", *tokens)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slot:
    tokens: tuple[int, ...]
    hash: str
    segment: Segment


class SystemPrefix:
    """Owned by the tick; files are written on a thread of its own. For adapters at the scales of
    the start only: the KV of others differs, and the tokens do not tell."""

    def __init__(self, folder: Path, model: str, identity: Identity) -> None:
        """Reads what an earlier server wrote."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", model.rpartition("/")[2])
        self._path = folder / f"{name}.safetensors"
        self._identity = identity
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="system-prefix")
        self._is_stopped = Event()
        self._slot = self._read()

    @property
    def nbytes(self) -> int:
        return 0 if self._slot is None else self._slot.segment.nbytes

    def find(self, tokens: Sequence[int]) -> Segment | None:
        """The KV of exactly these tokens. It is not to be written into."""
        return self._slot.segment if self._slot is not None and self._is_slots(tokens) else None

    def wanted(self, tokens: Sequence[int]) -> bool:
        """Whether `keep` would change anything."""
        return bool(tokens) and not self._is_slots(tokens)

    def keep(self, tokens: Sequence[int], segment: Segment) -> None:
        """In place of what there was. Returns when the arrays are made, before they are written."""
        if not self.wanted(tokens):
            return
        slot = _Slot(tokens=tuple(tokens), hash=token_hash(tokens), segment=segment)
        run = Run(key=NOBODY, prefix=(), tokens=slot.tokens)
        draft = drafted(self._path, run, segment.layers, self._identity)
        self._slot = slot
        self._threads.submit(self._write, slot, draft)

    def close(self) -> None:
        """A write that has begun is finished; one that waits is dropped."""
        self._is_stopped.set()
        self._threads.shutdown(wait=True)

    def _is_slots(self, tokens: Sequence[int]) -> bool:
        slot = self._slot
        return slot is not None and len(slot.tokens) == len(tokens) and slot.tokens == tuple(tokens)

    def _beside(self, end: str) -> Path:
        return self._path.with_name(self._path.name + end)

    def _write(self, slot: _Slot, draft: Draft) -> None:
        if self._is_stopped.is_set():
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (self._path, self._beside(".len"), self._beside(".hash")):
                path.unlink(missing_ok=True)
            _replace(self._beside(".len"), str(len(slot.tokens)))
            _replace(self._beside(".hash"), slot.hash)
            write_run(self._path, draft)
        except OSError as error:
            log.warning("the KV of the system messages is not kept: %s: %s", self._path, error)

    def _read(self) -> _Slot | None:
        if not self._is_there():
            return None
        length, digest = self._noted()
        try:
            read = read_run(self._path)
        except RunUnreadable as why:
            log.warning("the KV of the system messages is not used: %s: %s", self._path, why)
            return None
        run = read.run
        if read.identity != self._identity:
            log.info("the KV of the system messages is another model's: %s", self._path)
            return None
        if run.prefix or (len(run.tokens), token_hash(run.tokens)) != (length, digest):
            log.warning("the KV of the system messages is not that of its hash: %s", self._path)
            return None
        log.info("the KV of %d tokens of system messages is there: %s", length, self._path)
        return _Slot(tokens=run.tokens, hash=digest, segment=read.segment())

    def _is_there(self) -> bool:
        """Makes the folder where it is missing."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._path.exists()
        except OSError as error:
            log.warning(
                "the folder of system messages cannot be used (cache.prefix_dir): %s", error
            )
            return False

    def _noted(self) -> tuple[int, str]:
        """Length and hash; 0 and "" where they cannot be read."""
        try:
            length = int(self._beside(".len").read_text("ascii"))
            return length, self._beside(".hash").read_text("ascii").strip()
        except (OSError, ValueError):
            return 0, ""


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, "ascii")
    os.replace(temporary, path)
