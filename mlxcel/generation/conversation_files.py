"""Saved conversations as files of one folder: names, limits, order of writing, what is listed.

Two files each: KV, written by the worker under a temporary name, and a description. Knows nothing
of KV and of the worker. Every method blocks: callers run it on a thread.
"""

import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from mlxcel.core.conversations import ListedConversation, SavedConversation
from mlxcel.core.errors import MlxcelError

log = logging.getLogger(__name__)

VERSION = 2
KV, META = ".safetensors", ".meta.json"
DRAFT = ".draft-"
NAME_BYTES = 255
STALE_S = 3600.0
"""A draft that old belongs to nobody: its writer was killed."""
FULL = 0.9
"""Of the disk: a save that would fill more of it is refused, whoever asks."""


class ConversationNotSaved(MlxcelError):
    """Too large, no room, or a file that cannot be written (contract: one status for all)."""

    code = "conversation_not_saved"
    status = 413


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the KV of a saved conversation."""

    v: int = VERSION
    model: str
    conversation_id: str
    ts: int
    """Unix seconds."""
    title: str
    tokens: list[int]
    boundary_offsets: list[int]
    message_hashes: list[str]
    messages: list[dict[str, Any]]
    prefix: str
    """How its first message begins."""
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A save that has begun: where KV is written to, and the disk as it was before."""

    path: Path
    used_bytes: int
    total_bytes: int


def safe_model(name: str) -> str:
    """The base name of a model as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name.rpartition("/")[2])


def safe_id(conversation: str) -> str:
    """An id as part of a file name; no two ids are written alike. Escaped are, beside what is no
    plain character, underscores at the beginning and after another: `__` ends the model's name."""
    escaped = quote(conversation.encode("utf-8", "surrogateescape"), safe="")
    return re.sub(r"(?<![^_])_", "%5F", escaped.replace("~", "%7E"))


class ConversationFolder:
    """The saved conversations of one model. Others' files in the same folder are left alone."""

    def __init__(
        self,
        folder: Path,
        *,
        model: str,
        most_bytes: int,
        budget_bytes: int,
        disk_usage: Callable[[Path], Any] = shutil.disk_usage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`most_bytes` bounds the KV file of one; `budget_bytes` all files of this model."""
        self._folder = folder
        self._model = model.rpartition("/")[2]
        self._most_bytes = most_bytes
        self._budget_bytes = budget_bytes
        self._disk_usage = disk_usage
        self._clock = clock

    def begin(self) -> Draft:
        """Makes the folder. Raises ConversationNotSaved where a save has no chance."""
        try:
            self._make_folder()
            self._drop_stale()
            usage = self._disk_usage(self._folder)
        except OSError as error:
            raise ConversationNotSaved(
                f"the folder {self._folder} (cache.conversations.disk_dir) cannot be used: {error}"
            ) from error
        path = self._folder / f"{DRAFT}{secrets.token_hex(8)}{KV}"
        draft = Draft(path=path, used_bytes=usage.used, total_bytes=usage.total)
        self._check_room(draft, 0)
        return draft

    def finish(
        self,
        draft: Draft,
        conversation: str,
        *,
        title: str,
        tokens: list[int],
        offsets: list[int],
        hashes: list[str],
        messages: list[dict[str, Any]],
        is_unlimited: bool = False,
        budget_bytes: int | None = None,
    ) -> SavedConversation:
        """Checks what was written and gives it its name; then the oldest others go until the
        budget holds (None: the server's). Raises ConversationNotSaved."""
        try:
            size = draft.path.stat().st_size
            self._check_size(size, is_unlimited=is_unlimited)
            self._check_room(draft, size)
            path = self._path(conversation)
            self._check_name(path, conversation)
            meta = Meta(
                model=self._model,
                conversation_id=conversation,
                ts=int(self._clock()),
                title=title,
                tokens=tokens,
                boundary_offsets=offsets,
                message_hashes=hashes,
                messages=messages,
                prefix=_beginning(messages),
                path=path.name,
            )
            meta_bytes = self._publish(draft, path, msgspec.json.encode(meta))
        except OSError as error:
            raise ConversationNotSaved(f"the conversation cannot be written: {error}") from error
        budget = self._budget_bytes if budget_bytes is None else budget_bytes
        self._shrink(budget, spare=path)
        return SavedConversation(
            id=conversation, path=path.name, bytes=size, meta_bytes=meta_bytes, tokens=len(tokens)
        )

    def drop(self, draft: Draft) -> None:
        for path in (draft.path, draft.path.with_suffix(META)):
            path.unlink(missing_ok=True)

    def find(self, conversation: str) -> tuple[Path, Meta | None] | None:
        """The KV file of a saved one, and its description where that can be read."""
        path = self._path(conversation)
        return (path, _read_meta(_beside(path))) if self._holds(path, conversation) else None

    def items(self) -> list[ListedConversation]:
        """Oldest first. Raises OSError for a folder that cannot be read."""
        found = []
        for path in self._files():
            meta = _read_meta(_beside(path))
            if meta is None or meta.model != self._model:
                continue
            found.append(
                ListedConversation(
                    id=meta.conversation_id,
                    title=meta.title,
                    tokens=len(meta.tokens),
                    ts=meta.ts,
                    size_bytes=_size(path) + _size(_beside(path)),
                    path=path.name,
                    prefix=meta.prefix,
                )
            )
        return found

    def delete(self, conversation: str) -> bool:
        """False when there was none. Raises OSError."""
        path = self._path(conversation)
        return self._holds(path, conversation) and _remove(path)

    def _holds(self, path: Path, conversation: str) -> bool:
        if len(path.name) > NAME_BYTES or not path.is_file():
            return False
        meta = _read_meta(_beside(path))
        return meta is None or self._is_of(meta, conversation)

    def _path(self, conversation: str) -> Path:
        return self._folder / f"{safe_model(self._model)}__{safe_id(conversation)}{KV}"

    def _make_folder(self) -> None:
        """For its owner alone. The folder may lie where others can write: a link, or a folder of
        somebody else, is not used."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        about = self._folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise PermissionError(f"{self._folder} is no folder of this server's user")
        if stat.S_IMODE(about.st_mode) != 0o700:
            self._folder.chmod(0o700)

    def _drop_stale(self) -> None:
        for path in self._folder.glob(f"{DRAFT}*"):
            if self._clock() - path.stat().st_mtime > STALE_S:
                path.unlink(missing_ok=True)

    def _check_name(self, path: Path, conversation: str) -> None:
        if len(path.name) > NAME_BYTES:
            raise ConversationNotSaved(
                f"the conversation id is too long: as the name of a file it has {len(path.name)} "
                f"bytes (a plain letter, digit, - . or _ is one, all else three or more for each "
                f"character), and {NAME_BYTES} are allowed; save under a shorter id"
            )
        self._check_owner(path, conversation)

    def _check_owner(self, path: Path, conversation: str) -> None:
        """A disk that does not tell capitals from small letters gives two ids one file, and two
        models may have names that are written alike."""
        meta = _read_meta(_beside(path))
        if meta is not None and not self._is_of(meta, conversation):
            raise ConversationNotSaved(
                f"{path.name} is the file of the conversation {meta.conversation_id!r} of "
                f"{meta.model}; save under another id, or delete that one"
            )

    def _is_of(self, meta: Meta, conversation: str) -> bool:
        return (meta.model, meta.conversation_id) == (self._model, conversation)

    def _check_size(self, size: int, *, is_unlimited: bool) -> None:
        if size > self._most_bytes and not is_unlimited:
            raise ConversationNotSaved(
                f"the conversation has {size} bytes, more than the {self._most_bytes} allowed "
                "(cache.conversations.disk_max_bytes); override_limit saves it all the same"
            )

    def _check_room(self, draft: Draft, size: int) -> None:
        if draft.used_bytes + size > FULL * draft.total_bytes:
            share = (draft.used_bytes + size) / draft.total_bytes
            raise ConversationNotSaved(
                f"the disk of {self._folder} would be {share:.0%} full; at most {FULL:.0%} may be "
                "used: delete saved conversations, or make room"
            )

    def _publish(self, draft: Draft, path: Path, meta: bytes) -> int:
        """Both files get their names when both are on the disk, the description last: what is
        listed is there."""
        beside = draft.path.with_suffix(META)
        _write(beside, meta)
        draft.path.chmod(0o600)
        draft.path.replace(path)
        beside.replace(_beside(path))
        return len(meta)

    def _shrink(self, budget_bytes: int, *, spare: Path) -> None:
        files = [path for path in self._files() if path != spare]
        total = sum(_weight(path) for path in (*files, spare))
        for path in files:
            if total <= budget_bytes:
                return
            total -= _weight(path)
            log.info("saved conversation %s makes room for newer ones", path.name)
            _remove(path)

    def _files(self) -> list[Path]:
        """The KV files of this model, oldest first."""
        prefix = f"{safe_model(self._model)}__"
        found = [path for path in _entries(self._folder) if path.name.startswith(prefix)]
        own = (path for path in found if path.name.endswith(KV) and self._is_own(path))
        return sorted(own, key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _is_own(self, path: Path) -> bool:
        """The name of another model may begin with ours and two underscores; no id does."""
        rest = path.name.removeprefix(f"{safe_model(self._model)}__")
        return not rest.startswith("_") and "__" not in rest


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except FileNotFoundError:
        return


def _beside(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(KV) + META)


def _write(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _read_meta(path: Path) -> Meta | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Meta)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("the description of a saved conversation is left out: %s: %s", path, error)
        return None


def _beginning(messages: list[dict[str, Any]]) -> str:
    first = messages[0]["content"] if messages else ""
    return str(first)[:500]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _weight(path: Path) -> int:
    return _size(path) + _size(_beside(path))


def _remove(path: Path) -> bool:
    """The description first: what is listed is there."""
    _beside(path).unlink(missing_ok=True)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
