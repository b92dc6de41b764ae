"""Prompts that nobody waits for, read into the cache while there is nothing else to do."""

import logging
from dataclasses import dataclass

from msgspec.structs import replace

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.prompt_cache import PromptCache
from mlxcel.engine.cache.warm import WarmJob, WarmQueue
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.lora import LoraScales
from mlxcel.engine.prefill import Prefiller
from mlxcel.engine.schedule.scheduler import ENGINE_ERRORS
from mlxcel.link.messages import Warm, unpack_tokens

log = logging.getLogger(__name__)
ORIGIN = "warm-up"


@dataclass(slots=True, eq=False)
class _Reading:
    """A job that has begun: `engine.prompt.Reading`."""

    key: CacheKey
    tag: CacheTag
    tokens: tuple[int, ...]
    computed: int = 0
    kv: Prefilled | None = None
    index: int = 0
    stop: int = 0

    @property
    def lora(self) -> tuple[float, ...]:
        """Those it is kept under, however the scales have changed since it was asked for."""
        return self.key.lora

    @property
    def is_ready(self) -> bool:
        return self.computed >= len(self.tokens) - 1


class Warming:
    """Owned by the tick."""

    def __init__(
        self, prefiller: Prefiller, cache: PromptCache, lora: LoraScales, counters: Counters
    ) -> None:
        self._prefiller = prefiller
        self._cache = cache
        self._lora = lora
        self._counters = counters
        self._queue = WarmQueue(counters)
        self._job: _Reading | None = None

    def __len__(self) -> int:
        return len(self._queue) + (self._job is not None)

    def add(self, message: Warm) -> None:
        if self._cache.is_on:
            key = self._cache.key_of(message.tag, self._lora.current)
            self._queue.add(WarmJob(key=key, tag=message.tag, tokens=unpack_tokens(message.tokens)))

    def turn(self) -> bool:
        """One chunk. False when there was nothing to be read: after the last one what was kept is
        still to be looked at."""
        if self._job is None:
            job = self._queue.next()
            if job is None:
                return False
            self._job = _Reading(job.key, job.tag, job.tokens)
            self._cache.lay(job.key, job.tag, self._job)
        try:
            self._read(self._job)
        except ENGINE_ERRORS as why:
            log.warning("a warm-up failed: %s", why)
            self._job = None
        return True

    def stop(self) -> None:
        """Somebody waits. What was read so far is kept; the rest may never be needed."""
        if self._job is not None:
            self._keep(self._job)
            self._counters.snapshot_warmups_skipped += 1
            self._job = None

    def _read(self, job: _Reading) -> None:
        if not job.is_ready:
            self._prefiller.begin(job)
            self._prefiller.finish(job)
        if job.stop and job.computed == job.stop:
            self._cache.keep_read(job.key, job.tag, job, ORIGIN)
        if job.is_ready:
            self._keep(job)
            self._counters.snapshot_warmups_run += 1
            self._job = None

    def _keep(self, job: _Reading) -> None:
        """All of it is what a prompt will begin with, not only the part before some boundary."""
        self._cache.keep_read(job.key, replace(job.tag, boundary=0), job, ORIGIN)
