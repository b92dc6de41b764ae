"""Jobs that wait for an idle moment: in order, few, and none that would be for nothing."""

from dataclasses import replace

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.key import key_of
from mlxcel.engine.cache.warm import WarmJob, WarmQueue

TAG = CacheTag(session="s")
KEY = key_of(TAG, ())


def job(*tokens: int) -> WarmJob:
    return WarmJob(key=KEY, tokens=tokens, tag=TAG)


def queue_of(*jobs: WarmJob, most: int = 8) -> tuple[WarmQueue, Counters]:
    counters = Counters()
    queue = WarmQueue(counters, most=most)
    for one in jobs:
        queue.add(one)
    return queue, counters


def rest(queue: WarmQueue) -> list[tuple[int, ...]]:
    taken = []
    while (one := queue.next()) is not None:
        taken.append(one.tokens)
    return taken


def test_oldest_is_read_first() -> None:
    queue, _ = queue_of(job(1), job(2), job(3))
    assert len(queue) == 3
    assert rest(queue) == [(1,), (2,), (3,)]
    assert len(queue) == 0


def test_ninth_job_drives_out_the_oldest() -> None:
    queue, counters = queue_of(*(job(n) for n in range(8)))
    assert counters.snapshot_warmups_skipped == 0
    queue.add(job(8))
    assert counters.snapshot_warmups_skipped == 1
    assert rest(queue) == [(n,) for n in range(1, 9)]


def test_job_that_goes_on_from_another_takes_its_place() -> None:
    queue, counters = queue_of(job(1, 2), job(7), job(1, 2, 3), job(1, 9))
    assert counters.snapshot_warmups_skipped == 1
    assert rest(queue) == [(7,), (1, 2, 3), (1, 9)]


def test_same_job_is_queued_once() -> None:
    queue, _ = queue_of(job(1, 2), job(1, 2))
    assert rest(queue) == [(1, 2)]


def test_prompt_that_is_read_spares_its_beginnings() -> None:
    queue, counters = queue_of(job(1, 2, 3, 4, 5), job(1, 2, 3), job(1, 3))
    queue.drop_for(KEY, [1, 2, 3, 4])
    assert counters.snapshot_warmups_skipped == 1
    assert rest(queue) == [(1, 2, 3, 4, 5), (1, 3)]


def test_jobs_under_another_key_stay() -> None:
    queue, counters = queue_of(job(1, 2))
    queue.drop_for(replace(KEY, session="other"), [1, 2, 3])
    assert counters.snapshot_warmups_skipped == 0
    assert rest(queue) == [(1, 2)]
