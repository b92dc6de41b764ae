"""What a row may say next besides what its sampling wants: think block and constraint.

Pure host logic over token ids, one object a choice; it lives as long as the choice does, so a
preempted row goes on where it was. Knows nothing of batches, logits or text.

A constraint with triggers sleeps: the row is free until one of them is heard.
"""

import logging
from collections.abc import Sequence
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from mlxcel.core.steering import Thinking
from mlxcel.engine.constraint.matcher import Matcher

log = logging.getLogger(__name__)


class Phase(Enum):
    PENDING = auto()
    """No think block yet."""
    INSIDE = auto()
    CLOSED = auto()
    """The first block is over, or the answer began without one: no budget from here on."""


class Steering:
    """Mutable, owned by the tick. Each token, forced or drawn, goes through `accept`."""

    def __init__(
        self,
        thinking: Thinking | None,
        matcher: Matcher | None,
        *,
        after_thinking: bool,
        eos_ids: tuple[int, ...],
    ) -> None:
        is_asleep = matcher is not None and matcher.waker is not None
        if matcher is not None and not after_thinking and not is_asleep:
            thinking = None  # the constraint has the first word: there is no block to watch
        self._thinking = thinking
        self._matcher = None if is_asleep else matcher
        self._sleeper = matcher if is_asleep else None
        self._hears_thinking = not after_thinking
        self._eos_ids = eos_ids
        self._phase = _first_phase(thinking)
        self._inside = 0
        self._forced: list[int] = []
        self._is_closing = False
        self._is_ended = False
        """The block is to be closed once the token in flight is read."""
        self._opened = 0
        self._tail: tuple[int, ...] = ()
        if self._phase is Phase.INSIDE:
            self._close_at_budget()

    @property
    def needs_tokens(self) -> bool:
        """Whether the draw after the next token depends on what that token is. False: a step may
        be started while one token is unread."""
        return self.free is not None and self.free <= 0

    @property
    def free(self) -> int | None:
        """So many tokens may be unread, and the draw after them is still as it would be; None:
        any number."""
        is_held = self._matcher is not None or self._sleeper is not None
        if is_held or self._forced or self._is_ended:
            return 0
        if self._thinking is None or self._phase is Phase.CLOSED or self._thinking.budget < 0:
            return None
        said = self._inside + 1 if self._phase is Phase.INSIDE else 0
        return self._thinking.budget - said

    @property
    def waiting(self) -> Matcher | None:
        """The matcher that `allowed` will ask, for those who fill many at once."""
        is_asked = self._phase is not Phase.INSIDE and not self._forced
        return self._matcher if is_asked else None

    @property
    def is_complete(self) -> bool:
        """The constraint is satisfied and nothing may follow."""
        matcher = self._matcher
        return matcher is not None and self._phase is Phase.CLOSED and matcher.is_complete

    @property
    def is_forcing(self) -> bool:
        """The token to be said next belongs to the end of the block that the budget forces."""
        return self._is_closing

    def forced(self) -> int | None:
        """The next token, where it is fixed; nothing is drawn then."""
        return self._forced[0] if self._forced else None

    def allowed(self) -> NDArray[np.uint32] | None:
        """Bit t of these words: token t may be drawn next. None: any. Not for a forced token."""
        if self._matcher is None:
            return None
        if self._phase is Phase.INSIDE:
            return _without(self._matcher.everything(), self._eos_ids)
        words = self._matcher.allowed()
        if self._phase is Phase.PENDING and self._thinking is not None:
            return _with(words, self._thinking.open_ids[0])
        return words

    def end_thinking(self, *, is_flying: bool) -> None:
        """Closes the think block, as a budget would that is used up now. Without effect outside of
        one, and where nothing was said of it beforehand. `is_flying`: a token that was drawn has
        not been read; it is the last of the block."""
        may_be_ended = self._thinking is not None and self._thinking.may_be_ended
        if not may_be_ended or self._phase is not Phase.INSIDE or self._is_closing:
            return
        if is_flying:
            self._is_ended = True
        else:
            self._close()

    def accept(self, token: int) -> None:
        """Takes the token that was said."""
        was = self._phase
        was_forced = bool(self._forced)
        if was_forced:
            self._forced.pop(0)
        match self._phase:
            case Phase.PENDING:
                self._before_the_block(token)
            case Phase.INSIDE:
                self._in_the_block(token, is_free=not was_forced)
            case Phase.CLOSED if self._matcher is not None:
                self._matcher.accept(token)
        if self._sleeper is not None:
            self._listen(token, self._sleeper, is_thought=Phase.INSIDE in (was, self._phase))

    def _listen(self, token: int, sleeper: Matcher, *, is_thought: bool) -> None:
        assert sleeper.waker is not None
        if is_thought and not self._hears_thinking:
            sleeper.waker.restart()
            return
        beginning = sleeper.waker.hear(token)
        if beginning is None:
            return
        self._sleeper = None
        if not sleeper.begin(beginning):
            log.warning("a lazy grammar was broken when its trigger came: the answer stays free")
            return
        self._matcher = sleeper
        self._phase = Phase.CLOSED  # the constraint has the word from here on
        self._forced = []
        self._is_closing = self._is_ended = False

    def _before_the_block(self, token: int) -> None:
        assert self._thinking is not None
        if self._matcher is not None:
            self._first_word(token, self._thinking.open_ids, self._matcher)
        elif self._has_said(token, self._thinking.open_ids):
            self._enter()
        elif _ends_with(self._tail, self._thinking.close_ids):
            self._phase = Phase.CLOSED

    def _first_word(self, token: int, open_ids: tuple[int, ...], matcher: Matcher) -> None:
        """Under a constraint the first token tells: it begins the answer or the marker. One that
        could be either begins the answer, which the constraint alone decides."""
        if self._opened == 0 and matcher.allows(token):
            self._phase = Phase.CLOSED
            matcher.accept(token)
            return
        self._opened += 1
        self._forced = list(open_ids[self._opened :])
        if not self._forced:
            self._enter()

    def _in_the_block(self, token: int, *, is_free: bool) -> None:
        assert self._thinking is not None
        if self._has_said(token, self._thinking.close_ids) and (is_free or not self._forced):
            self._phase = Phase.CLOSED
            self._is_closing = self._is_ended = False
        elif is_free:
            self._inside += 1
            self._close_at_budget()

    def _enter(self) -> None:
        self._phase = Phase.INSIDE
        self._tail = ()
        self._close_at_budget()

    def _close_at_budget(self) -> None:
        assert self._thinking is not None
        if self._is_ended or 0 <= self._thinking.budget <= self._inside:
            self._close()

    def _close(self) -> None:
        thinking = self._thinking
        assert thinking is not None
        begun = _overlap(self._tail, thinking.close_ids)
        # A marker that is half said is finished; a message inside it would break it.
        message = () if begun else thinking.message_ids
        self._forced = [*message, *thinking.close_ids[begun:]]
        self._is_closing = True
        self._is_ended = False

    def _has_said(self, token: int, marker: tuple[int, ...]) -> bool:
        """Adds the token; whether the marker has just been completed."""
        assert self._thinking is not None
        kept = max(len(self._thinking.open_ids), len(self._thinking.close_ids))
        self._tail = (*self._tail, token)[-kept:]
        return _ends_with(self._tail, marker)


def _first_phase(thinking: Thinking | None) -> Phase:
    if thinking is None:
        return Phase.CLOSED
    return Phase.INSIDE if thinking.is_open else Phase.PENDING


def _ends_with(tail: Sequence[int], marker: Sequence[int]) -> bool:
    return tuple(tail[-len(marker) :]) == tuple(marker)


def _overlap(tail: tuple[int, ...], marker: tuple[int, ...]) -> int:
    """How many ids of the marker have been said at the end of `tail`."""
    sizes = range(min(len(tail), len(marker) - 1), 0, -1)
    return next((size for size in sizes if tail[-size:] == marker[:size]), 0)


def _with(words: NDArray[np.uint32], token: int) -> NDArray[np.uint32]:
    changed = words.copy()
    changed[token >> 5] |= np.uint32(1 << (token & 31))
    return changed


def _without(words: NDArray[np.uint32], tokens: tuple[int, ...]) -> NDArray[np.uint32]:
    changed = words.copy()
    for token in tokens:
        changed[token >> 5] &= np.uint32(~(1 << (token & 31)) & 0xFFFFFFFF)
    return changed
