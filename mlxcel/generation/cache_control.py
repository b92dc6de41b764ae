"""The prompt cache from outside: the worker that has it is asked."""

from typing import Any, Protocol

from mlxcel.link.messages import Question


class Asked(Protocol):
    """What answers: the client of the chat worker."""

    async def ask(
        self, question: Question, options: dict[str, Any] | None = None
    ) -> dict[str, Any]: ...


class CacheControl:
    """Implements `core.ports.CacheControl`."""

    def __init__(self, chat: Asked) -> None:
        self._chat = chat

    async def stats(self) -> dict[str, Any]:
        return await self._chat.ask(Question.CACHE_STATS)

    async def reset(self) -> dict[str, Any]:
        return await self._chat.ask(Question.CACHE_RESET)
