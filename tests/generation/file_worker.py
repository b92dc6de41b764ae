"""A chat worker that knows one conversation, and writes a file of zeros for its KV."""

import asyncio
from pathlib import Path
from typing import Any

from mlxcel.core.errors import ErrorInfo, RemoteError
from mlxcel.link.messages import Question

TOKENS = [1, 15, 7, 42]


class FileWorker:
    """Writes what it was told to where it was told, as the chat worker does."""

    def __init__(self, *, size: int = 64, refusal: ErrorInfo | None = None) -> None:
        self.size = size
        self.refusal = refusal
        self.tokens = list(TOKENS)
        self.asked: list[tuple[Question, dict[str, Any]]] = []

    async def ask(
        self,
        question: Question,
        options: dict[str, Any] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> dict[str, Any]:
        assert options is not None
        self.asked.append((question, options))
        if self.refusal is not None:
            raise RemoteError(self.refusal)
        if question is Question.CONVERSATION_LOAD:
            return {"tokens": len(self.tokens)}
        await asyncio.to_thread(Path(options["path"]).write_bytes, bytes(self.size))
        return {"tokens": self.tokens, "bytes": self.size}
