"""Slot files: a line of JSON that says what the tokens belong to, the tokens as int32, and a
digest of both (engine contract, cache 12).

Everything here reads or writes a disk: it runs on a thread.
"""

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from mlxcel.core.cache import CacheTag
from mlxcel.core.errors import BadRequest, MlxcelError
from mlxcel.core.file_names import is_plain_name
from mlxcel.generation.identity import Identity
from mlxcel.generation.slot_table import TokenStream
from mlxcel.link.messages import unpack_tokens

log = logging.getLogger(__name__)

MAGIC = "mlxcel-slot"
VERSION = 1
HEADER_BYTES = 65_536
"""No header is longer."""
TOKEN_BYTES = 4
DIGEST_BYTES = hashlib.sha256().digest_size


class Header(msgspec.Struct, frozen=True, kw_only=True):
    magic: str
    version: int
    model: str
    tokenizer: str
    count: Annotated[int, msgspec.Meta(ge=0)]
    """Of tokens."""
    tag: CacheTag | None = None


@contextmanager
def _disk(what: str) -> Iterator[None]:
    """A fault of the disk in words for a client, who need not know the folder; the log does."""
    try:
        yield
    except OSError as why:
        log.error("%s: %s", what, why)
        raise MlxcelError(f"{what}: {why.strerror or type(why).__name__}") from why


class SlotFiles:
    """The files of one folder. It is made with the first of them, for its owner alone."""

    def __init__(self, folder: Path, identity: Callable[[], Identity]) -> None:
        self._folder = folder
        self._identity = identity

    def place(self, name: str) -> Path:
        """Where a file of this name is, or would be, links followed. Raises BadRequest for what
        is no plain name, lies outside the folder or is not a file."""
        if not is_plain_name(name):
            raise BadRequest("Invalid filename")
        with _disk(f"Cannot look for the slot file {name}"):
            root = self._folder.resolve()
            path = _resolved(root / name)
            if path is None or not path.is_relative_to(root):
                raise BadRequest("Invalid filename")
            if path.exists() and not path.is_file():
                raise BadRequest("Invalid filename")
        return path

    def write(self, path: Path, stream: TokenStream) -> int:
        """The file is there whole or not at all. Returns its size in bytes."""
        with _disk(f"Cannot write the slot file {path.name}"):
            data = _head(self._identity(), stream) + stream.tokens
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, data + hashlib.sha256(data).digest())
        return len(data) + DIGEST_BYTES

    def read(self, path: Path, *, window: int, vocab_size: int) -> tuple[TokenStream, int]:
        """The tokens, and the size of the file in bytes. `window` is what a slot holds, 0:
        unbounded. Raises BadRequest."""
        with _disk(f"Cannot read the slot file {path.name}"), _opened(path) as file:
            line = file.readline(HEADER_BYTES)
            header = self._header(path.name, line)
            if 0 < window < header.count:
                raise _refusal(
                    f"{path.name} holds {header.count} tokens, but the context window of a slot "
                    f"is {window} tokens"
                )
            rest = file.read(header.count * TOKEN_BYTES + DIGEST_BYTES + 1)
        tokens, digest = rest[:-DIGEST_BYTES], rest[-DIGEST_BYTES:]
        is_whole = len(tokens) == header.count * TOKEN_BYTES
        if not is_whole or hashlib.sha256(line + tokens).digest() != digest:
            raise _refusal(f"{path.name} is damaged or was cut short; save it again")
        if not all(0 <= token < vocab_size for token in unpack_tokens(tokens)):
            raise _refusal(f"{path.name} holds tokens the model does not have")
        return TokenStream(tokens=tokens, tag=header.tag), len(line) + len(rest)

    def _header(self, name: str, line: bytes) -> Header:
        try:
            header = msgspec.json.decode(line, type=Header)
        except msgspec.DecodeError:
            header = None
        if header is None or header.magic != MAGIC:
            raise _refusal(f"{name} is no slot file")
        if header.version != VERSION:
            raise _refusal(f"{name} has version {header.version}; this server reads {VERSION}")
        own = self._identity()
        if header.model != own.model:
            raise _refusal(f"{name} was saved with another model")
        if header.tokenizer != own.tokenizer:
            raise _refusal(f"{name} was saved with another tokenizer")
        return header


def _head(own: Identity, stream: TokenStream) -> bytes:
    """A tag that is too long (its session is the client's word) is left out: it is worth a
    prompt that is read ahead, no more."""
    for tag in (stream.tag, None):
        header = Header(
            magic=MAGIC,
            version=VERSION,
            model=own.model,
            tokenizer=own.tokenizer,
            count=stream.count,
            tag=tag,
        )
        line = msgspec.json.encode(header) + b"\n"
        if len(line) <= HEADER_BYTES:
            break
    return line


def _refusal(why: str) -> BadRequest:
    log.warning("a slot is not restored: %s", why)
    return BadRequest(f"Unable to restore slot: {why}")


def _resolved(path: Path) -> Path | None:
    """None for links that lead in a circle."""
    try:
        return path.resolve()
    except RuntimeError:
        return None


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file that is no link; a pipe would be waited for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as why:
        raise _refusal(f"there is no file {path.name}") from why
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BadRequest("Invalid filename")
        yield file


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """A name is on the disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
