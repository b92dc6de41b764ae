"""How much of an answer is thinking, counted in tokens."""

from collections.abc import Sequence


class ThoughtCounter:
    """Counts the tokens inside of think blocks, without those of the markers."""

    def __init__(
        self, opening: Sequence[int], closing: Sequence[int], *, is_open: bool = False
    ) -> None:
        """`is_open`: the prompt ends inside of a block."""
        self._marks = {False: tuple(opening), True: tuple(closing)}
        self._is_open = is_open
        self._seen = 0
        """Tokens at the end that begin the next marker."""
        self.tokens = 0

    def feed(self, token: int) -> None:
        mark = self._marks[self._is_open]
        self.tokens += self._is_open
        # Markers of several tokens do not begin anew inside of themselves.
        if token == mark[self._seen]:
            self._seen += 1
        else:
            self._seen = int(token == mark[0])
        if self._seen < len(mark):
            return
        if self._is_open:
            self.tokens -= len(mark)
        self._is_open, self._seen = not self._is_open, 0
