"""Two sessions, two servers: what one of them is told does not depend on the other."""

from typing import Any

from tests.whole.cache_calls import BODIES, Body, Told, ask, named, reset, shown
from tests.whole.program import Program

SECRET = "Xylophon"
WORDS = "nothing but words that fill some blocks of the cache, and then more of them. " * 3
PRIVATE = f"{WORDS}{SECRET} {WORDS}"
"""What the one session says."""
GUESSES = (
    f"{WORDS}{SECRET[:3]}",
    f"{WORDS}{SECRET[:3]}, or not",
    PRIVATE[:100],
    f"N{PRIVATE[1:50]}",
)
"""What the other one says: up to the secret, beyond it, a part, one letter changed early."""


class Pair:
    """Two servers of one configuration: the first has both sessions, the second only one."""

    def __init__(self, seen: Program, fresh: Program) -> None:
        self._seen = seen
        self._fresh = fresh
        reset(seen, fresh)

    def first(self, body: Body, **how: Any) -> Told:
        return ask(self._seen, body, **how)

    def second(self, body: Body, **how: Any) -> Told:
        """The same from both, in every byte that is not of a clock."""
        told = ask(self._seen, body, **how)
        assert shown(told) == shown(ask(self._fresh, body, **how))
        assert SECRET not in told.body
        assert not any(SECRET in value for value in told.headers.values())
        return told

    def walk(self, codec: str, path: str, one: Body, other: Body, *, stream: bool) -> None:
        """By one route. `one` and `other` are what names the sessions."""
        body, one, other = BODIES[codec], named(codec, one), named(codec, other)
        how: Any = {"path": path, "stream": stream}
        for _ in range(2):
            self.first(body(PRIVATE) | one, **how)
        told = [self.second(body(text) | other, **how) for text in GUESSES]
        # Its own first request is not there yet, then it is all that is.
        assert told[0].header == "miss; reason=empty_set"
        assert told[1].reused > 0
        assert self.first(body(PRIVATE) | one, **how).reused > len(PRIVATE) - 32
