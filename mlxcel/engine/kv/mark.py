"""Where caches of mlx-lm stood before a step, so that it can be taken back.

KV that holds every position is trimmed. Other state (recurrent, convolution, windows) is put back
as it was: held are handles of its arrays, whose memory is copied only where it is written.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from mlx_lm.models.cache import BatchKVCache, CacheList, KVCache


class Mark:
    """Of the caches of one row, all at one position."""

    def __init__(self, caches: Iterable[Any]) -> None:
        self._ways_back = [_way_back(cache) for cache in caches]

    def back(self) -> None:
        for go in self._ways_back:
            go()


def _way_back(cache: Any) -> Callable[[], None]:
    if isinstance(cache, CacheList):
        return Mark(cache.caches).back
    if isinstance(cache, KVCache | BatchKVCache):
        before = cache.size()
        return lambda: _trim(cache, before)
    held = copy.deepcopy(vars(cache))
    return lambda: vars(cache).update(held)


def _trim(cache: Any, before: int) -> None:
    cache.trim(cache.size() - before)
