"""Hashes of blocks of tokens, each over the one before it (engine contract, cache 4), and how much
of a prompt may be adopted by them.

`H(block) = hash(tag + parent + count + tokens + extra)`: 32 bytes; the parent of the first is zero
bytes, the count is 64 and each token 32 bits, little endian.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence

from mlxcel.core.cache import NO_DIGEST
from mlxcel.core.errors import StartupError

Digest = Callable[[bytes], bytes]

TAG = b"mlxcel:apc:block:v1"
KINDS = {"sha256": "sha256", "sha-256": "sha256", "blake3": "blake3", "blake-3": "blake3"}


def block_hashes(
    tokens: Sequence[int], block: int, extra: bytes = NO_DIGEST, kind: str = "sha256"
) -> list[bytes]:
    """One for each block of tokens; the last may be a partial one, which is nobody's parent.
    `extra` is the digest of the media. Raises StartupError as `digest_of`."""
    return list(chain(tokens, block, digest_of(kind), extra=extra))


def chain(
    tokens: Sequence[int],
    block: int,
    digest: Digest,
    *,
    parent: bytes = NO_DIGEST,
    extra: bytes = NO_DIGEST,
) -> Iterator[bytes]:
    """The hashes of the blocks that follow the block `parent`."""
    for start in range(0, len(tokens), block):
        ids = tokens[start : start + block]
        parent = digest(TAG + parent + struct.pack(f"<Q{len(ids)}i", len(ids), *ids) + extra)
        yield parent


def digest_of(kind: str) -> Digest:
    """Raises StartupError for an unknown kind, and for one whose package is not installed."""
    if kind not in KINDS:
        raise StartupError(f"cache.apc.hash: {kind!r} is no hash; known: {', '.join(KINDS)}")
    return _sha256 if KINDS[kind] == "sha256" else _blake3()


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _blake3() -> Digest:
    try:
        from blake3 import blake3  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise StartupError(
            "cache.apc.hash: blake3 needs a package that is not installed; "
            "run pip install 'mlxcel[blake3]', or set it to sha256"
        ) from error

    def digest(data: bytes) -> bytes:
        return bytes(blake3(data).digest())

    return digest
