"""Where in a text its last few tokens have stood before (prompt lookup decoding, Saxena 2023)."""

from collections.abc import Iterable


class NgramIndex:
    """The places of all n-grams of a growing text, for n from `least` to `most`."""

    def __init__(self, least: int, most: int) -> None:
        assert 1 <= least <= most
        self._sizes = range(most, least - 1, -1)
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], tuple[int, int]] = {}
        """Of each n-gram, where its newest occurrence ends, and the one before it; 0: there was
        none. The newest of the text's own end is no place to go on from."""

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        known, ends = self._tokens, self._ends
        for token in tokens:
            known.append(token)
            end = len(known)
            for size in self._sizes:
                if size <= end:
                    gram = tuple(known[end - size :])
                    newest, _ = ends.get(gram, (0, 0))
                    ends[gram] = end, newest

    def after(self, count: int) -> list[int]:
        """Up to `count` tokens that followed where the longest end of the text stood last."""
        for size in self._sizes:
            if size > len(self._tokens):
                continue
            _, before = self._ends[tuple(self._tokens[-size:])]
            if before:
                return self._tokens[before : before + count]
        return []
