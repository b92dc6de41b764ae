"""Rows of a scripted model decoded tick by tick, and what each tick took."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from bench_scripted import Script, Texts, foreseen
from engine_decode import CACHE, NO_DRAFT, worker_of
from engine_warm import submit

from mlxcel.engine.chat import ChatWorker
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.link.messages import RowTokens
from mlxcel.weights.load import LoadedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the rows of a run say."""

    texts: Texts
    """Of each row: its prompt and its answer."""
    prompts: Sequence[int]
    """Tokens of each prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """Who drafts in a run: by default nobody."""

    governor: str | None = None
    """Of a drafter that knows the text."""
    is_weighed: bool = False
    """Rounds are held against their price as well."""
    most: int = 0
    """Tokens proposed at once, at most."""
    rate: float = 0.0
    """How many of them are right."""
    draft: Mapping[str, Any] | None = None
    """The section `draft` of a drafter that the product has."""
    drafter: DraftHead | None = None
    """Its weights, where it has some."""


PLAIN = Mode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Of each tick that was timed: when it ended, and the tokens that came with it."""

    ends_s: Sequence[float]
    said: Sequence[int]
    rounds: int
    proposed: int
    accepted: int

    @property
    def tokens_per_s(self) -> float:
        return sum(self.said) / self.ends_s[-1]

    @property
    def tick_ms(self) -> float:
        return 1e3 * self.ends_s[-1] / len(self.ends_s)

    def window_ms(self, tokens: int) -> list[float]:
        """Milliseconds that each so many tokens took; whole windows alone."""
        marks, total = [0.0], list(accumulate(self.said))
        for end_s, so_far in zip(self.ends_s, total, strict=True):
            while so_far >= tokens * len(marks):
                marks.append(end_s)
        return [1e3 * (b - a) for a, b in pairwise(marks)]


Clock = Callable[[], float]


class Bench:
    def __init__(self, model: LoadedModel, clock: Clock = time.perf_counter) -> None:
        self._model = model
        self._clock = clock
        self._script = Script(model.network)

    def run(
        self,
        mode: Mode,
        work: Work,
        *,
        skip: int = 0,
        tokens: int | None = None,
        most_s: float = float("inf"),
        seed: int = 0,
    ) -> Ran:
        """Timed from where every row has said `skip` tokens, until they have said `tokens` each on
        average (None: until all have ended) or the time is over."""
        with _worker(self._model, mode, work, seed) as worker:
            self._script.tell(worker, work.texts)
            try:
                return _decode(worker, work, skip, tokens, most_s, self._clock)
            finally:
                self._script.forget()


@contextmanager
def _worker(model: LoadedModel, mode: Mode, work: Work, seed: int) -> Iterator[ChatWorker]:
    drafting: AbstractContextManager[None] = nullcontext()
    if mode.governor is not None:
        drafting = foreseen(
            work.texts,
            rate=mode.rate,
            most=mode.most,
            governor=mode.governor,
            is_weighed=mode.is_weighed,
            seed=seed,
        )
    with drafting:
        draft = mode.draft or NO_DRAFT
        worker = worker_of(model, len(work.texts), CACHE, draft, mode.drafter)
    try:
        yield worker
    finally:
        worker.close()


def _decode(
    worker: ChatWorker, work: Work, skip: int, tokens: int | None, most_s: float, clock: Clock
) -> Ran:
    heard: list[list[int]] = [[] for _ in work.texts]

    def tick(*messages: Any) -> bool:
        """False: there is nothing left to do."""
        frame, sleep_s = worker.tick(list(messages))
        for event in frame.events if frame is not None else ():
            if isinstance(event, RowTokens):
                heard[int(event.id)] += event.ids
        return sleep_s is not None

    tick(*[
        submit(str(n), list(text[:prompt]), len(text) - prompt, keeps=False)
        for n, (text, prompt) in enumerate(zip(work.texts, work.prompts, strict=True))
    ])  # fmt: skip
    rows, report = worker._scheduler._decoder.rows, worker._report
    while len(rows) < len(heard) or min(map(len, heard)) < skip:
        assert tick(), "rows end before they are timed"
    counts = report.draft_rounds, report.draft_proposed, report.draft_accepted
    before = so_far = sum(map(len, heard))
    ends_s, said, is_busy = [], [], True
    began_s = clock()
    while is_busy and (tokens is None or so_far < before + tokens * len(heard)):
        is_busy = tick()
        now = sum(map(len, heard))
        ends_s.append(clock() - began_s)
        said.append(now - so_far)
        so_far = now
        if ends_s[-1] > most_s:
            break
    for answer, text, prompt in zip(heard, work.texts, work.prompts, strict=True):
        assert answer == list(text[prompt : prompt + len(answer)]), "it did not keep to the script"
    return Ran(
        ends_s=ends_s,
        said=said,
        rounds=report.draft_rounds - counts[0],
        proposed=report.draft_proposed - counts[1],
        accepted=report.draft_accepted - counts[2],
    )
