"""What the worker is asked between two steps: numbers of the cache, and conversations in files.

Files are read and written on a thread; the answer comes when that is done.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxcel.core.errors import MlxcelError, NotImplementedHere
from mlxcel.engine.cache import conversation_files as files
from mlxcel.engine.cache.columns import ColumnKeeping
from mlxcel.engine.cache.counters import PoolNumbers, reset_body
from mlxcel.engine.cache.disk.tier import Identity
from mlxcel.engine.cache.keeping import EVALUATION_ERRORS
from mlxcel.engine.cache.prompt_cache import PromptCache
from mlxcel.engine.cache.run_file import ReadRun
from mlxcel.engine.report import Report
from mlxcel.link.messages import Ask, Question, Reply
from mlxcel.worker.heap import return_freed_pages

log = logging.getLogger(__name__)

Value = dict[str, Any]
NO_ROOM = (
    "it is longer than cache.conversations.max_tokens, or its KV larger than the prompt cache "
    "(cache.prompt.capacity_bytes)"
)
Finish = Callable[[Any], Value]
"""Makes the answer of what a thread has done; on the tick."""


class Answers:
    """Owned by the tick."""

    def __init__(
        self,
        report: Report,
        cache: PromptCache,
        pool: Callable[[], PoolNumbers],
        identity: Callable[[], Identity],
    ) -> None:
        self._report = report
        self._cache = cache
        self._pool = pool
        self._identity = identity
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._waiting: dict[str, tuple[Future[Any], Finish]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, ask: Ask) -> None:
        try:
            match ask.question:
                case Question.CACHE_STATS:
                    self._say(ask.id, self._cache.stats(self._pool()))
                case Question.CACHE_RESET:
                    self._say(ask.id, self._reset())
                case Question.CONVERSATION_SAVE:
                    self._save(ask)
                case Question.CONVERSATION_LOAD:
                    self._load(ask)
        except MlxcelError as why:
            self._report.answer(Reply(id=ask.id, error=why.info()))

    def poll(self) -> None:
        """What has been read or written since."""
        for name in [name for name, (future, _) in self._waiting.items() if future.done()]:
            future, finish = self._waiting.pop(name)
            try:
                self._say(name, finish(future.result()))
            except MlxcelError as why:
                self._report.answer(Reply(id=name, error=why.info()))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _reset(self) -> Value:
        """What was kept leaves the process as well: whoever empties the cache wants the memory."""
        freed = self._cache.reset()
        mx.clear_cache()
        return_freed_pages()
        return reset_body(*freed)

    def _save(self, ask: Ask) -> None:
        keeping, path = self._columns(), Path(ask.options["path"])
        kept = keeping.newest(ask.options["session"])
        if kept is None:
            raise files.ConversationNotKept
        key, tokens, layers = kept
        try:
            draft = files.ready(path, tokens, key, layers, self._identity())
        except EVALUATION_ERRORS as why:
            raise files.ConversationNotWritten(f"the conversation cannot be copied: {why}") from why
        written = self._thread.submit(files.put, path, draft)
        self._waiting[ask.id] = (written, lambda nbytes: {"tokens": list(tokens), "bytes": nbytes})

    def _load(self, ask: Ask) -> None:
        keeping, session = self._columns(), ask.options["session"]
        path = Path(ask.options["path"])

        def finish(read: ReadRun) -> Value:
            try:
                is_kept = keeping.put(read.run.key, read.run.tokens, read.segment(), session)
            except EVALUATION_ERRORS as why:
                raise files.ConversationUnreadable(path, str(why)) from why
            if not is_kept:
                raise files.ConversationUnreadable(path, NO_ROOM)
            return {"tokens": len(read.run.tokens)}

        read = self._thread.submit(files.take, path, self._identity())
        self._waiting[ask.id] = (read, finish)

    def _columns(self) -> ColumnKeeping:
        keeping = self._cache.keeping
        if not isinstance(keeping, ColumnKeeping):
            raise NotImplementedHere(
                "conversations are kept for models whose KV can be cut by tokens, while the "
                "prompt cache is on (cache.prompt.enabled)"
            )
        return keeping

    def _say(self, name: str, value: Value) -> None:
        self._report.answer(Reply(id=name, value=value))
