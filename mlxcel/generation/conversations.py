"""Conversations of the kamiwaza seed: what the front knows of each, and how they are kept as files.

KV itself is the worker's: a conversation is a session of its prompt cache. Lives on the event
loop; only work on files leaves it.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from mlxcel.core.cache import CacheUse
from mlxcel.core.conversations import (
    IdRules,
    ListedConversation,
    LoadedConversation,
    SavedConversation,
)
from mlxcel.core.errors import MlxcelError
from mlxcel.core.request import Message
from mlxcel.generation.conversation_files import ConversationFolder, Meta
from mlxcel.generation.tags import session_of
from mlxcel.link.messages import Question

FILE_S = 300.0
"""How long the worker may take to write or read the KV of one conversation."""
HASH_CHARS = 16

Ends = Callable[[Sequence[int]], list[int]]
"""From the tokens of a conversation to how many of them stand before the end of each message."""


class ConversationNotFound(MlxcelError):
    code = "conversation_not_found"
    status = 404


class AskPort(Protocol):
    """The chat worker, as far as files of conversations go."""

    async def ask(
        self,
        question: Question,
        options: dict[str, Any] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> dict[str, Any]: ...


def message_hash(message: Message) -> str:
    data = f"{message.role}\n{message.text}".encode("utf-8", "surrogatepass")
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()[:HASH_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One conversation as it stood when its last answer had ended."""

    messages: tuple[dict[str, Any], ...]
    """As clients write them."""
    hashes: tuple[str, ...]
    ends: Ends
    """Asked when it is saved: nothing else needs them, and each costs a rendering."""
    ts: float
    title: str = ""


class ConversationBook:
    """The conversations in memory, the least recently used first. One loop owns it."""

    def __init__(
        self, *, most: int, ttl_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`ttl_s` counts from the last use; 0: for ever."""
        self._most = most
        self._ttl_s = ttl_s
        self._clock = clock
        self._records: OrderedDict[str, tuple[Record, float]] = OrderedDict()

    def __len__(self) -> int:
        self._expire()
        return len(self._records)

    def get(self, conversation: str) -> Record | None:
        """Counts as a use."""
        self._expire()
        found = self._records.get(conversation)
        if found is None:
            return None
        self._touch(conversation, found[0])
        return found[0]

    def put(self, conversation: str, record: Record) -> None:
        self._expire()
        self._touch(conversation, record)
        while len(self._records) > self._most:
            self._records.popitem(last=False)

    def _touch(self, conversation: str, record: Record) -> None:
        self._records[conversation] = (record, self._clock())
        self._records.move_to_end(conversation)

    def _expire(self) -> None:
        """Uses are in order of time: the first that is young ends the search."""
        if self._ttl_s <= 0:
            return
        oldest = self._clock() - self._ttl_s
        while self._records and next(iter(self._records.values()))[1] < oldest:
            self._records.popitem(last=False)


class ConversationService:
    """Implements `core.conversations.Conversations`."""

    def __init__(
        self,
        *,
        ids: IdRules,
        book: ConversationBook,
        folder: ConversationFolder,
        chat: AskPort,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.ids = ids
        self._book = book
        self._folder = folder
        self._chat = chat
        self._clock = clock
        # Two saves of one conversation would each take the other's budget for free.
        self._saving = asyncio.Lock()

    @classmethod
    def of(
        cls, section: Mapping[str, Any], *, model: str, cache_dir: Path | None, chat: AskPort
    ) -> Self | None:
        """From `cache.conversations`; None where they are off."""
        if not section["enabled"]:
            return None
        folder = _folder(section["disk_dir"], cache_dir)
        return cls(
            ids=IdRules(has_auto=section["auto_id"], fixed=section["auto_fixed"]),
            book=ConversationBook(most=section["max_conversations"], ttl_s=section["ttl_secs"]),
            folder=ConversationFolder(
                folder,
                model=model,
                most_bytes=section["disk_max_bytes"],
                budget_bytes=section["disk_budget_bytes"],
            ),
            chat=chat,
        )

    def commit(self, conversation: str, messages: Sequence[Message], ends: Ends) -> None:
        """After an answer has ended well; it is the last of the messages."""
        before = self._book.get(conversation)
        record = Record(
            messages=tuple(map(_plain, messages)),
            hashes=tuple(map(message_hash, messages)),
            ends=ends,
            ts=self._clock(),
            title="" if before is None else before.title,
        )
        self._book.put(conversation, record)

    async def save(
        self,
        conversation: str,
        *,
        title: str | None = None,
        budget_bytes: int | None = None,
        is_unlimited: bool = False,
    ) -> SavedConversation:
        """Raises ConversationNotFound, ConversationNotSaved, and what the worker answers."""
        record = self._book.get(conversation)
        if record is None:
            raise ConversationNotFound("conversation not found or no cache in memory")
        if title is not None:
            record = replace(record, title=title)
        async with self._saving:
            draft = await asyncio.to_thread(self._folder.begin)
            try:
                told = {"session": _session(conversation), "path": str(draft.path)}
                kept = await self._chat.ask(Question.CONVERSATION_SAVE, told, timeout_s=FILE_S)
                saved = await asyncio.to_thread(
                    lambda: self._folder.finish(
                        draft,
                        conversation,
                        title=record.title,
                        tokens=list(kept["tokens"]),
                        offsets=record.ends(kept["tokens"]),
                        hashes=list(record.hashes),
                        messages=list(record.messages),
                        is_unlimited=is_unlimited,
                        budget_bytes=budget_bytes,
                    )
                )
            finally:
                await asyncio.to_thread(self._folder.drop, draft)
        self._book.put(conversation, record)
        return saved

    async def load(self, conversation: str) -> LoadedConversation:
        """Replaces what is in memory. Raises ConversationNotFound, and what the worker answers
        for a file that is unsound or another model's."""
        found = await asyncio.to_thread(self._folder.find, conversation)
        if found is None:
            raise ConversationNotFound("conversation not found on disk")
        path, meta = found
        told = {"session": _session(conversation), "path": str(path)}
        kept = await self._chat.ask(Question.CONVERSATION_LOAD, told, timeout_s=FILE_S)
        tokens: int = kept["tokens"]
        if meta is not None and len(meta.tokens) != tokens:
            meta = None  # written for other tokens, it says nothing of these
        self._book.put(conversation, _record(meta))
        return LoadedConversation(
            id=conversation,
            tokens=tokens,
            has_boundary=meta is not None and bool(meta.boundary_offsets),
            has_hashes=meta is not None and bool(meta.message_hashes),
        )

    async def items(self) -> list[ListedConversation]:
        """Of this model, oldest first. Raises OSError."""
        return await asyncio.to_thread(self._folder.items)

    async def delete(self, conversation: str) -> bool:
        """The files only; False when there were none. Raises OSError."""
        return await asyncio.to_thread(self._folder.delete, conversation)


def _session(conversation: str) -> str:
    return session_of(CacheUse(conversation=conversation))


def _folder(asked: str | None, cache_dir: Path | None) -> Path:
    if asked is not None:
        return Path(asked).expanduser()
    base = Path("~/.cache/mlxcel").expanduser() if cache_dir is None else cache_dir
    return base / "conversations"


def _plain(message: Message) -> dict[str, Any]:
    """As clients write a message."""
    plain: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.name is not None:
        plain["name"] = message.name
    if message.reasoning:
        plain["reasoning_content"] = message.reasoning
    if message.calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.call_id is not None:
        plain["tool_call_id"] = message.call_id
    return plain


def _record(meta: Meta | None) -> Record:
    if meta is None:
        return Record(messages=(), hashes=(), ends=lambda _: [], ts=0.0)
    return Record(
        messages=tuple(meta.messages),
        hashes=tuple(meta.message_hashes),
        ends=lambda tokens: [end for end in meta.boundary_offsets if end <= len(tokens)],
        ts=meta.ts,
        title=meta.title,
    )
