"""The KV of one conversation as one file, under a name that others choose.

Arrays are made ready and taken over on the tick; what touches the file may run on any thread.
"""

from collections.abc import Sequence
from pathlib import Path

from mlxcel.core.errors import MlxcelError
from mlxcel.engine.cache.disk.files import Draft
from mlxcel.engine.cache.disk.run import Identity, Run
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.run_file import ReadRun, RunUnreadable, drafted, read_run, write_run
from mlxcel.engine.cache.segment import Layers, Segment


class ConversationNotKept(MlxcelError):
    """The worker has no KV of it (any more)."""

    code = "conversation_not_found"
    status = 404

    def __init__(self) -> None:
        super().__init__("conversation not found or no cache in memory")


class ConversationNotWritten(MlxcelError):
    code = "conversation_not_saved"
    status = 413


class ConversationUnreadable(MlxcelError):
    """There is a file, but it cannot be used here."""

    code = "conversation_unreadable"
    status = 400

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"the saved conversation {path.name} cannot be loaded: {why}")


def ready(
    path: Path, tokens: Sequence[int], key: CacheKey, layers: Layers, identity: Identity
) -> Draft:
    """On the tick: waits for the arrays. `layers` hold exactly these tokens."""
    return drafted(path, Run(key=key, prefix=(), tokens=tuple(tokens)), layers, identity)


def put(path: Path, draft: Draft) -> int:
    """Bytes of the file, which is there whole or not at all. Any thread. Raises
    ConversationNotWritten."""
    try:
        return write_run(path, draft)
    except OSError as error:
        raise ConversationNotWritten(f"the conversation cannot be written: {error}") from error


def take(path: Path, identity: Identity) -> ReadRun:
    """All of a conversation. Any thread. Raises ConversationUnreadable."""
    try:
        read = read_run(path)
    except RunUnreadable as why:
        raise ConversationUnreadable(path, str(why)) from why
    if read.identity != identity:
        raise ConversationUnreadable(path, _difference(read.identity, identity))
    if read.run.prefix:
        raise ConversationUnreadable(path, "it holds a part of a conversation only")
    return read


def write(
    path: Path, tokens: Sequence[int], key: CacheKey, layers: Layers, identity: Identity
) -> int:
    """`ready` and `put` in one."""
    return put(path, ready(path, tokens, key, layers, identity))


def read(path: Path, identity: Identity) -> tuple[tuple[int, ...], CacheKey, Segment]:
    """`take` in one, with the arrays. On the tick."""
    taken = take(path, identity)
    return taken.run.tokens, taken.run.key, taken.segment()


def _difference(theirs: Identity, ours: Identity) -> str:
    if theirs.model != ours.model:
        return "it was written for another model"
    if theirs.kv_mode != ours.kv_mode:
        return f"its KV mode is {theirs.kv_mode}, the server's {ours.kv_mode} (cache.kv.mode)"
    return "it was written with other LoRA adapters"
