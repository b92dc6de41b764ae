"""Stop strings in text that arrives in pieces.

The result does not depend on how the text was cut: of all matches the one that starts first
wins, on a tie the one first in the list.
"""

from collections.abc import Sequence

from mlxcel.text.tails import begins_at


class StopMatcher:
    """Holds back the longest tail that could still become part of a match."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that may be shown, and the stop that ended the answer, if one did."""
        if not self._stops:
            return text, None
        text = self._held + text
        match, open_at = self._first_match(text), self._first_open(text)
        if match is not None and (open_at is None or match < open_at):
            return self._end(text, match)
        # An earlier start, or an earlier place in the list, may still win over `match`.
        cut = len(text) if open_at is None else open_at[0]
        self._held = text[cut:]
        return text[:cut], None

    def flush(self) -> tuple[str, str | None]:
        """No more text will come: what was held back, decided."""
        if not self._held:
            return "", None
        text, match = self._held, self._first_match(self._held)
        if match is not None:
            return self._end(text, match)
        self._held = ""
        return text, None

    def _end(self, text: str, match: tuple[int, int]) -> tuple[str, str]:
        start, index = match
        self._held = ""
        return text[:start], self._stops[index]

    def _first_match(self, text: str) -> tuple[int, int] | None:
        """(start, index in the list) of the whole match that wins so far."""
        found = ((text.find(stop), index) for index, stop in enumerate(self._stops))
        return min((match for match in found if match[0] >= 0), default=None)

    def _first_open(self, text: str) -> tuple[int, int] | None:
        """(start, index) of the strongest stop that has begun and is not complete."""
        begun = ((begins_at(text, stop), index) for index, stop in enumerate(self._stops))
        return min(((start, index) for start, index in begun if start is not None), default=None)
