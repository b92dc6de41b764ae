"""The prompt cache as the scheduler sees it: what a prompt need not read again, and what is kept
of what was read.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlxcel.core.cache import CacheReport, CacheStatus, CacheTag, Reject
from mlxcel.engine.cache.counters import Counters, PoolNumbers, StatsConfig, stats_body
from mlxcel.engine.cache.keeping import EVALUATION_ERRORS, Keeping, Numbers
from mlxcel.engine.cache.key import CacheKey, key_of
from mlxcel.engine.cache.look import OFF, Look
from mlxcel.engine.cache.spill import Fetch
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.prompt import Prompt, Reading
from mlxcel.engine.request import Request
from mlxcel.engine.sequence import Sequence as Row

log = logging.getLogger(__name__)

SHARED = 0.5
"""Of a prompt: when another one that is about to be read has so much in common with it, it waits
for that, instead of being read beside it."""


class PromptCache:
    """Owned by the tick. `keeping` None: the server has none, and every call is a no-op."""

    def __init__(
        self,
        keeping: Keeping | None,
        counters: Counters,
        config: StatsConfig,
        *,
        idle: Numbers = Numbers(),  # noqa: B008
        block_bytes: int = 0,
        min_prefix: int = 32,
        rope: str = "",
        traces: bool = False,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """`idle` are the numbers without a cache: its bounds. `block_bytes` is what a block of
        the KV budget takes."""
        self._idle = idle
        self._keeping = keeping
        self._counters = counters
        self._config = config
        self._block_bytes = block_bytes
        self._min_prefix = min_prefix
        self._rope = rope
        self._traces = traces
        self._now_ms = now_ms

    # Before a prompt is read.

    def fetch(self, request: Request) -> Fetch | None:
        """Begin to bring its prefix from disk, where that has more of it than memory."""
        tag = request.submit.cache
        if self._keeping is None or tag is None:
            return None
        return self._keeping.fetch(self._key(request, tag), tag, request.prompt)

    def fetched(self, request: Request, fetch: Fetch) -> None:
        if self._keeping is not None:
            request.fetched = self._keeping.fetched(fetch)

    def preview(self, request: Request) -> CacheReport | None:
        """What is there for a request that has arrived, once what was on disk was brought."""
        if self._keeping is None:
            return None
        tag = request.submit.cache
        if tag is None:
            return OFF
        return self._look(request, tag, request.prompt).report(fetched=request.fetched)

    def cold(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Those at the beginning that are read together: nothing is kept of them, and none of
        them is for the greater part what the first one is about to read."""
        if self._keeping is None or len(prompts) < 2:
            return list(prompts)
        head = prompts[0]
        found: list[Prompt] = []
        for prompt in prompts:
            if self._length(prompt) or (prompt is not head and self._waits(head, prompt)):
                break
            found.append(prompt)
        return found if len(found) > 1 else []

    def adopt(self, prompt: Prompt) -> None:
        """Before anything is allocated for it."""
        if self._keeping is None:
            return
        request, tag = prompt.request, prompt.request.submit.cache
        if tag is None:
            self._note(request, prompt, Look(reason=Reject.DISABLED), OFF)
            return
        key = self._key(request, tag)
        look = self.lay(key, tag, prompt)
        self._note(request, prompt, look, look.report(fetched=request.fetched))

    def lay(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> Look:
        """A copy of what is kept into a cold prompt, whoever it is read for."""
        assert self._keeping is not None
        look = self._keeping.adopt(key, tag, prompt)
        prompt.stop = self._keeping.stop(tag, prompt)
        return look

    # After it was read.

    def computed(self, tokens: int, seconds: float) -> None:
        """So many tokens of prompts were read by the model, in one forward."""
        if self._keeping is not None:
            self._keeping.computed(tokens, seconds)

    def has_read(self, prompt: Prompt) -> None:
        """A chunk more. Kept is the whole of a prompt, and where it had to stop."""
        if prompt.is_ready or (prompt.stop and prompt.computed == prompt.stop):
            self.keep(prompt)

    def keep(self, prompt: Prompt) -> None:
        """What was read of it so far; nothing of a row that has forgotten some."""
        tag = prompt.request.submit.cache
        if tag is not None and not any(row.has_forgotten for row in prompt.rows):
            self.keep_read(self._key(prompt.request, tag), tag, prompt, prompt.request.id)

    def keep_read(self, key: CacheKey, tag: CacheTag, prompt: Reading, name: str) -> None:
        """The same, whoever it was read for: `name` is for the trace."""
        if self._keeping is not None:
            with _harmless():
                self._keeping.keep_prompt(key, tag, prompt)
            self._trace("store", name, prompt.computed)

    def keep_row(self, row: Row, kv: KVBatch, place: int) -> None:
        """As the decoder tells of rows that leave."""
        tag = row.request.submit.cache
        if self._keeping is None or tag is None or row.has_forgotten:
            return
        tokens = row.read_tokens
        with _harmless():
            self._keeping.keep_row(self._key(row.request, tag), tokens, kv, place)
        self._trace("store", row.key, len(tokens))

    def distrust(self) -> None:
        if self._keeping is not None:
            self._keeping.distrust()

    # Around a turn of the scheduler.

    def begin_turn(self) -> None:
        if self._keeping is not None:
            self._keeping.begin_turn()

    def end_turn(self, *, is_idle: bool) -> None:
        if self._keeping is not None:
            self._keeping.end_turn(is_idle=is_idle)

    def fit(self, blocks_left: int | None) -> None:
        """Rows go first: kept is what the KV budget has beside them."""
        if self._keeping is not None and blocks_left is not None:
            self._keeping.fit(blocks_left * self._block_bytes)

    def stats(self, pool: PoolNumbers) -> dict[str, Any]:
        """The body of GET /v1/cache/stats."""
        numbers = self._idle if self._keeping is None else self._keeping.numbers()
        return stats_body(
            self._counters,
            self._config,
            store=numbers.store,
            snapshots=numbers.snapshots,
            pool=pool,
            disk=numbers.disk,
        )

    def reset(self) -> tuple[int, int]:
        """Bytes and entries there were. Rows that run are not touched."""
        return (0, 0) if self._keeping is None else self._keeping.reset()

    def check(self) -> None:
        if self._keeping is not None:
            self._keeping.check()

    def close(self) -> None:
        if self._keeping is not None:
            self._keeping.close()

    @property
    def keeping(self) -> Keeping | None:
        return self._keeping

    @property
    def is_on(self) -> bool:
        return self._keeping is not None

    def key_of(self, tag: CacheTag, lora: tuple[float, ...]) -> CacheKey:
        return key_of(tag, lora, self._rope)

    def _key(self, request: Request, tag: CacheTag) -> CacheKey:
        return self.key_of(tag, request.lora)

    def _look(self, request: Request, tag: CacheTag, tokens: Sequence[int]) -> Look:
        assert self._keeping is not None
        return self._keeping.look(self._key(request, tag), tag, tokens)

    def _length(self, prompt: Prompt) -> int:
        tag = prompt.request.submit.cache
        if tag is None:
            return 0
        assert self._keeping is not None
        return self._keeping.length(self._key(prompt.request, tag), tag, prompt.tokens)

    def _waits(self, head: Prompt, prompt: Prompt) -> bool:
        tags = [one.request.submit.cache for one in (head, prompt)]
        if None in tags or tags[0].session != tags[1].session:  # type: ignore[union-attr]
            return False
        shared = common_length(head.tokens, prompt.tokens)
        return shared >= max(self._min_prefix, SHARED * len(prompt.tokens))

    def _note(self, request: Request, prompt: Prompt, look: Look, report: CacheReport) -> None:
        """Once a request: what is read again after a preemption is no news."""
        if request.cache is not None:
            return
        request.cache = report
        self._count(request, look, len(prompt.tokens), report)
        self._trace("adopt" if look.length else f"reject {report.reason}", request.id, look.length)

    def _count(self, request: Request, look: Look, length: int, report: CacheReport) -> None:
        counters = self._counters
        if self._keeping is not None and report.status is not CacheStatus.OFF:
            self._keeping.count(length, look)
        if report.status is not CacheStatus.HIT and report.reason is not None:
            counters.reject(
                report.reason,
                request_id=request.id,
                context_len=length,
                entry_len=look.entry_length,
                at_unix_ms=self._now_ms(),
            )

    def _trace(self, what: str, name: str, tokens: int) -> None:
        if self._traces:
            log.info("prompt cache: %s %s, %d tokens", what, name, tokens)


@contextmanager
def _harmless() -> Iterator[None]:
    """Copies that cannot be made are no reason to lose a row, nor the worker: some rows leave
    outside of a step."""
    try:
        yield
    except EVALUATION_ERRORS as why:
        log.warning("KV that was to be kept is lost: %s", why)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that two begin with."""
    pairs = zip(a, b, strict=False)
    return next((at for at, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
