"""One scrape: the worker is asked, within bounds, and everything is written down.

A scrape never fails and never waits long: what the worker does not say in time is told as it was.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric

from mlxcel.core.errors import MlxcelError
from mlxcel.core.status import State, WorkerStats, WorkerStatus
from mlxcel.metrics import cache, worker
from mlxcel.metrics.families import exposition
from mlxcel.metrics.llama import LlamaFamilies
from mlxcel.metrics.meter import RequestMeter
from mlxcel.metrics.requests import request_families, time_families
from mlxcel.metrics.steady import Steady

ASK_S = 1.0
NOBODY = WorkerStatus(name="", state=State.STOPPED, stats=WorkerStats(slots=0))

Stats = Callable[[], Awaitable[Mapping[str, Any]]]


class Scrapes:
    """What is kept from one scrape to the next. Owned by the event loop."""

    def __init__(self, meter: RequestMeter) -> None:
        self.started_unix = int(time.time())
        self._meter = meter
        self._llama = LlamaFamilies(meter)
        self._worker = Steady()
        self._cache = Steady()
        self._body: Mapping[str, Any] = {}

    async def text(
        self,
        chat: Callable[[], WorkerStatus] | None,
        cache_stats: Stats | None,
        statuses: Sequence[WorkerStatus],
        *,
        is_scrape: bool = True,
    ) -> bytes:
        """`is_scrape` False: it is looked at, and averages go on. None: there is no model."""
        await self._ask(NOBODY if chat is None else chat(), cache_stats)
        # Only now: the answer came with newer numbers.
        status = NOBODY if chat is None else chat()
        self._worker.see(status.restarts, worker.counters_of(status.stats))
        by_name = {one.name: one for one in statuses}
        return exposition(self._families(status, by_name, is_scrape=is_scrape))

    async def _ask(self, chat: WorkerStatus, cache_stats: Stats | None) -> None:
        if cache_stats is None or chat.state is not State.OK:
            self._body = {}
            return
        try:
            async with asyncio.timeout(ASK_S):
                self._body = await cache_stats()
        except TimeoutError:
            return
        except MlxcelError:
            self._body = {}
            return
        self._cache.see(chat.restarts, cache.counters_of(self._body))

    def _families(
        self, status: WorkerStatus, statuses: Mapping[str, WorkerStatus], *, is_scrape: bool
    ) -> Iterator[Metric]:
        stats = status.stats
        yield from self._llama.families(stats, self._worker, is_scrape=is_scrape)
        yield from request_families(self._meter)
        yield from worker.slot_families(status)
        yield from worker.batch_families(stats, self._worker)
        yield from cache.pool_families(self._body, stats.active)
        yield from worker.decode_families()
        yield from worker.language_families(self._worker)
        yield from cache.prompt_families(self._body, self._cache)
        yield from cache.snapshot_families(self._cache)
        yield from cache.reject_families(self._cache)
        yield from time_families(self._meter)
        yield from worker.life_families(statuses)
