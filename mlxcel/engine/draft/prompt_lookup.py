"""Proposals out of the context itself: what followed when its last words stood there before."""

from collections.abc import Sequence

from mlxcel.engine.draft.ngrams import NgramIndex


class PromptLookup:
    """The drafter of one row."""

    is_free = True
    odds = None

    def __init__(self, *, ngram_min: int, ngram_max: int) -> None:
        self._index = NgramIndex(ngram_min, ngram_max)

    def hear(self, tokens: Sequence[int]) -> None:
        self._index.extend(tokens)

    def propose(self, count: int) -> list[int]:
        return self._index.after(count)
