"""Conversations with an id, as the HTTP side sees them: whose a request is, and what is kept in
files."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRules:
    """Whose conversation a request is that names none."""

    has_auto: bool = True
    """That of the client's address."""
    fixed: str = "_default"
    """The id where no address is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConversation:
    id: str
    path: str
    """The name of the file with its KV."""
    bytes: int
    meta_bytes: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConversation:
    id: str
    tokens: int
    has_boundary: bool
    """It is known where each message ends."""
    has_hashes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConversation:
    id: str
    title: str
    tokens: int
    ts: int
    """When it was saved, Unix seconds."""
    size_bytes: int
    path: str
    prefix: str
    """How its first message begins."""


class Conversations(Protocol):
    """What is kept of conversations beyond their KV. Whatever asks the worker raises Unavailable,
    WorkerDied and AnswerTimeout too."""

    @property
    def ids(self) -> IdRules: ...

    async def save(
        self,
        conversation: str,
        *,
        title: str | None = None,
        budget_bytes: int | None = None,
        is_unlimited: bool = False,
    ) -> SavedConversation:
        """Raises an error with status 404 for one that is not in memory, 413 for every fault of
        the files. `budget_bytes` is for all saved ones of the model; None: the server's."""
        ...

    async def load(self, conversation: str) -> LoadedConversation:
        """From its files into memory. Raises an error with status 404 where there are none."""
        ...

    async def items(self) -> list[ListedConversation]:
        """The saved ones, oldest first. Raises OSError."""
        ...

    async def delete(self, conversation: str) -> bool:
        """The files; False when there were none. Raises OSError."""
        ...
