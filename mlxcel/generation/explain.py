"""Where a prompt parts from what was kept, in words: a worker knows tokens only."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from mlxcel.core.cache import CacheReport, Divergence
from mlxcel.text.vocabulary import Vocabulary

Says = Callable[[CacheReport | None], CacheReport | None]

EXCERPT_CHARS = 80
CONTEXT_CHARS = 30
"""Of an excerpt, at most so much of what both have in common."""


def explainer(vocabulary: Vocabulary) -> Says:
    return partial(in_words, vocabulary=vocabulary)


def in_words(report: CacheReport | None, *, vocabulary: Vocabulary) -> CacheReport | None:
    """With short excerpts of both sides."""
    if report is None or report.diverged is None:
        return report
    place = report.diverged
    told = replace(
        place,
        prompt_text=_excerpt(place, place.prompt_ids, vocabulary),
        entry_text=_excerpt(place, place.entry_ids, vocabulary),
    )
    return replace(report, diverged=told)


def _excerpt(place: Divergence, ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """The end of what is shared and the beginning of what is not. A character that is cut in two
    shows as U+FFFD."""
    shared = max(0, place.at - place.start)
    before = _text(ids[:shared], vocabulary)[-CONTEXT_CHARS:]
    whole = before + _text(ids[shared:], vocabulary)
    return whole[:EXCERPT_CHARS]


def _text(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    data = b"".join(vocabulary.bytes_of(token) for token in ids)
    return data.decode("utf-8", "replace")
