"""The beginning of a file, which says everything but the numbers.

A safetensors file: the run as JSON in the metadata, the token ids as the first tensor, then the
arrays. The beginning follows from the run, the ids and the digest of the arrays alone, so it is
checked by writing it again and comparing: no bit of it can change unseen.
"""

import hashlib
import json
import struct
from array import array
from collections.abc import Iterator

import msgspec
import numpy as np

from mlxcel.engine.cache.disk.arrays import STORED, Sheet, Sheets, nbytes_of
from mlxcel.engine.cache.disk.run import VERSION, Identity, Run
from mlxcel.engine.cache.key import CacheKey

MAGIC = "mlxcel-kv"
LENGTH = struct.Struct("<Q")
ID_BYTES = 4
ALIGN = 8


class NotSound(Exception):
    """The file is not what was written."""


class NotOurs(Exception):
    """The file may be sound; it is of another model, mode, program or version."""


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    identity: Identity
    key: CacheKey
    start: int
    tokens: int
    sheets: Sheets

    @property
    def id_bytes(self) -> int:
        return (self.start + self.tokens) * ID_BYTES

    @property
    def data_bytes(self) -> int:
        return sum(map(nbytes_of, self.all_sheets()))

    @property
    def largest_bytes(self) -> int:
        """Of its largest array."""
        return max(map(nbytes_of, self.all_sheets()), default=0)

    def all_sheets(self) -> Iterator[Sheet]:
        return (sheet for layer in self.sheets for sheet in layer)


class _Metadata(msgspec.Struct, frozen=True):
    format: str = ""
    version: str = ""
    run: str = ""
    data: str = ""
    """SHA-256 of the arrays' bytes, one behind the other."""


class _Table(msgspec.Struct, frozen=True):
    metadata: _Metadata = msgspec.field(name="__metadata__", default=_Metadata())


def head_of(identity: Identity, run: Run, sheets: Sheets) -> Head:
    return Head(
        identity=identity, key=run.key, start=run.start, tokens=len(run.tokens), sheets=sheets
    )


def ids_of(run: Run) -> bytes:
    ids = array("i", run.prefix)
    ids.extend(run.tokens)
    return ids.tobytes()


def run_of(head: Head, ids: bytes) -> Run:
    tokens = tuple(np.frombuffer(ids, np.int32).tolist())
    return Run(key=head.key, prefix=tokens[: head.start], tokens=tokens[head.start :])


def text_of(head: Head) -> str:
    return msgspec.json.encode(head).decode()


def encoded(head: Head, run: str, ids: bytes, data: str) -> bytes:
    """All before the ids. `run` is the head's text, as it was first written: another version may
    write it otherwise. `data` has the same length for every file: the place of the arrays is known
    before their digest is."""
    seal = hashlib.sha256(b"\0".join((run.encode(), data.encode(), ids))).hexdigest()
    table: dict[str, object] = {
        "__metadata__": {
            "format": MAGIC,
            "version": str(VERSION),
            "run": run,
            "data": data,
            "seal": seal,
        }
    }
    at = 0
    for name, kind, shape, nbytes in _tensors(head):
        table[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    raw = json.dumps(table, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % ALIGN)
    return LENGTH.pack(len(raw)) + raw


def parsed(raw: bytes) -> tuple[Head, str, str]:
    """What a beginning claims, the text of that, and the digest of the arrays; `raw` without the
    length before it. Nothing is believed yet. Raises NotSound, NotOurs."""
    try:
        metadata = msgspec.json.decode(raw, type=_Table).metadata
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as why:
        raise NotSound(f"its header cannot be read: {why}") from why
    if (metadata.format, metadata.version) != (MAGIC, str(VERSION)):
        raise NotOurs(f"its format is {metadata.format!r}, version {metadata.version!r}")
    try:
        head = msgspec.json.decode(metadata.run, type=Head)
    except (msgspec.MsgspecError, UnicodeError) as why:
        raise NotSound(f"what it says of its run cannot be read: {why}") from why
    if head.start < 0 or head.tokens < 1 or not all(map(_is_sane, head.all_sheets())):
        raise NotSound("what it says of its run cannot be")
    return head, metadata.run, metadata.data


def _tensors(head: Head) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    yield "ids", "I32", (head.start + head.tokens,), head.id_bytes
    for layer, sheets in enumerate(head.sheets):
        for part, sheet in enumerate(sheets):
            yield f"layers.{layer}.{part}", STORED[sheet[0]][0], sheet[1], nbytes_of(sheet)


def _is_sane(sheet: Sheet) -> bool:
    return sheet[0] in STORED and all(size >= 0 for size in sheet[1])
