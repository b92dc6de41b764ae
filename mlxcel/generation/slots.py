"""What clients do with slots: save, restore and erase the tokens they have served.

Files hold no KV. A restored prompt is read again while the worker is idle, from its own cache
where that still has it, so that the next request finds it there.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, Self, TypeVar

from mlxcel.core.errors import NotImplementedHere, Unavailable
from mlxcel.core.ports import SlotFile, SlotState
from mlxcel.core.status import ModelInfo, WorkerStatus
from mlxcel.core.window import effective_window
from mlxcel.generation.identity import read_identity
from mlxcel.generation.slot_files import SlotFiles
from mlxcel.generation.slot_states import slot_states
from mlxcel.generation.slot_table import SlotTable
from mlxcel.link.messages import Warm
from mlxcel.text.tokenizer import TextModel

T = TypeVar("T")


class Warmed(Protocol):
    """The client of the chat worker."""

    def status(self) -> WorkerStatus: ...

    def warm(self, message: Warm, /) -> None: ...


class Slots:
    """Implements `core.ports.Slots`. Owned by the event loop; files are a thread's work."""

    def __init__(
        self,
        table: SlotTable,
        *,
        chat: Warmed,
        text: TextModel,
        files: SlotFiles | None = None,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        """Without `files` nothing is kept."""
        self._table = table
        self._chat = chat
        self._text = text
        self._files = files
        self._threads = threads

    @classmethod
    def of(
        cls,
        table: SlotTable,
        *,
        chat: Warmed,
        text: TextModel,
        folder: str | None,
        model: Path | None,
        name: str,
    ) -> Self:
        """`folder` is `cache.slot_save_path`; `model` and `name` are those of the checkpoint."""
        if folder is None:
            return cls(table, chat=chat, text=text)
        # One thread: what is written to a file is what the last of two clients wanted.
        threads = ThreadPoolExecutor(1, thread_name_prefix="slots")
        identity = threads.submit(read_identity, model, name)
        files = SlotFiles(Path(folder).expanduser(), identity.result)
        return cls(table, chat=chat, text=text, files=files, threads=threads)

    def check_kept(self) -> None:
        self._kept()

    @property
    def count(self) -> int:
        self._model()
        return self._table.count

    def states(self, *, with_text: bool = False) -> Sequence[SlotState]:
        model = self._chat.status().model
        if model is None:
            return ()
        window = effective_window(model.context_window, model.train_window)
        states = slot_states(self._table, window=window, text=self._text, with_text=with_text)
        return tuple(states)

    async def save(self, slot: int, name: str) -> SlotFile:
        files = self._kept()
        path = await self._done(lambda: files.place(name))
        self._check_idle(slot)
        began_s = time.perf_counter()
        stream = self._table.stream(slot)
        size = await self._done(lambda: files.write(path, stream))
        return _file(stream.count, size, began_s)

    async def restore(self, slot: int, name: str) -> SlotFile:
        files, model = self._kept(), self._model()
        path = await self._done(lambda: files.place(name))
        self._check_idle(slot)
        began_s = time.perf_counter()
        window = effective_window(model.context_window, model.train_window)
        stream, size = await self._done(
            lambda: files.read(path, window=window, vocab_size=model.vocab_size)
        )
        self._check_idle(slot)  # a request may have begun meanwhile
        self._table.put(slot, stream)
        if stream.tag is not None and stream.count > 0:
            self._chat.warm(Warm(tokens=stream.tokens, tag=stream.tag))
        return _file(stream.count, size, began_s)

    def erase(self, slot: int) -> int:
        self._check_idle(slot)
        return self._table.erase(slot)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _kept(self) -> SlotFiles:
        if self._files is None:
            raise NotImplementedHere(
                "slots are not kept: start the server with --slot-save-path DIR "
                "(cache.slot_save_path)"
            )
        return self._files

    def _model(self) -> ModelInfo:
        status = self._chat.status()
        if status.model is None:
            raise Unavailable(f"the {status.name} worker is {status.state.value}; retry later")
        return status.model

    def _check_idle(self, slot: int) -> None:
        if self._table.is_busy(slot):
            raise Unavailable("Requested slot is processing")

    async def _done(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _file(tokens: int, size_bytes: int, began_s: float) -> SlotFile:
    took_ms = (time.perf_counter() - began_s) * 1000
    return SlotFile(tokens=tokens, size_bytes=size_bytes, took_ms=took_ms)
