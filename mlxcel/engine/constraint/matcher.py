"""One answer being held to its grammar: which tokens may follow, and whether it may end.

The ends of text are kept apart from the grammar here: they come with each request, while the
library fixes its own when it reads the tokenizer.
"""

import logging
import re
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from mlxcel.core.errors import BadRequest, GenerationFailed, MlxcelError
from mlxcel.engine.constraint.waking import Piece, Speech, Waker, spelled

log = logging.getLogger(__name__)

SLOW_S = 0.1
"""A mask takes 10 ms at worst for grammars people write."""
SLOW_ENOUGH_S = 1.0
"""Of a row: then it ends, whoever else is served by this worker."""
TOO_WIDE = re.compile(r"row has (\d+) items; max is (\d+)")
"""What the library says of a grammar that is sound, and beyond its limits at some place."""

Words = NDArray[np.uint32]
"""A set of tokens: token t is in it where bit t % 32 of word t // 32 is set."""


class Vocab:
    """How wide masks are: `size` logits for a model, `known` tokens in its tokenizer. `own_eos`
    are the ends of text that the library fixed: it allows them wherever an answer may end."""

    def __init__(self, size: int, known: int, own_eos: tuple[int, ...] = ()) -> None:
        self.size = size
        self.known_words = -(-max(size, known) // 32)
        self._own_eos = own_eos

    @cached_property
    def everything(self) -> Words:
        words = np.full(-(-self.size // 32), 0xFFFFFFFF, np.uint32)
        if self.size % 32:
            words[-1] = (1 << self.size % 32) - 1
        return words

    @cached_property
    def text(self) -> Words:
        """What the library's masks are cut down to."""
        return self.everything & ~self.words_of(self._own_eos)

    def words_of(self, tokens: tuple[int, ...]) -> Words:
        """Those that have a logit."""
        words = np.zeros_like(self.everything)
        for token in tokens:
            if token < self.size:
                words[token >> 5] |= np.uint32(1 << (token & 31))
        return words


class Matcher:
    """Mutable, owned by the tick; a step that fails here fails its row alone. `waker` finds what
    it begins with; None: it binds at once."""

    def __init__(
        self,
        grammar: LLMatcher,
        vocab: Vocab,
        eos_ids: tuple[int, ...],
        *,
        speech: Speech | None = None,
        waker: Waker | None = None,
    ) -> None:
        self.grammar = grammar
        self.waker = waker
        self._speech = speech
        self._vocab = vocab
        self._eos_ids = eos_ids
        self._ends = vocab.words_of(eos_ids)
        self._allowed: Words | None = None
        self._is_over = False
        self._slow_s = 0.0
        """Spent on masks that took long."""

    @property
    def is_accepting(self) -> bool:
        """What was said is a whole answer."""
        return self._is_over or self.grammar.is_accepting()

    @property
    def is_complete(self) -> bool:
        """It is, and no token but an end of text may follow."""
        return self._is_over or (self.grammar.is_stopped() and self.grammar.is_accepting())

    @property
    def is_filled(self) -> bool:
        """The tokens that may follow are known already."""
        return self._allowed is not None or self._is_over

    def allowed(self) -> Words:
        """The tokens that may follow; not to be written to. Raises GenerationFailed where there
        are none, or where the library gave up."""
        if self._allowed is None:
            row, began_s = self.empty_row(), time.perf_counter()
            self.grammar.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
            self.took(time.perf_counter() - began_s)
            self.fill(row)
        self._check()
        words = self._allowed
        assert words is not None
        if not self.is_accepting and not words.any():
            raise GenerationFailed("no token can continue the constrained output")
        return words

    def allows(self, token: int) -> bool:
        return bool(self.allowed()[token >> 5] >> (token & 31) & 1)

    def everything(self) -> Words:
        """All tokens of the model."""
        return self._vocab.everything

    def empty_row(self) -> NDArray[np.int32]:
        """Memory for the library to write a mask to."""
        return np.zeros(self._vocab.known_words, np.int32)

    def took(self, seconds: float) -> None:
        """What a mask has cost everybody: rows wait for each other's."""
        if seconds > SLOW_S:
            self._slow_s += seconds

    def fill(self, row: NDArray[np.int32]) -> None:
        """Takes what the library wrote."""
        words = row.view(np.uint32)[: self._ends.size] & self._vocab.text & ~self._ends
        if self.grammar.is_accepting():
            self._is_over = self._is_over or not words.any()
            words |= self._ends
        self._allowed = words

    def accept(self, token: int) -> None:
        """Takes a token that was said. Raises GenerationFailed for one that cannot follow."""
        self._allowed = None
        if token in self._eos_ids:
            self._is_over = True
            return
        self.grammar.consume_token(token)
        self._check()

    def begin(self, pieces: Sequence[Piece]) -> bool:
        """Takes what was said before it binds. False: that does not fit, or nothing can follow;
        the matcher is of no use then."""
        if not all(map(self._has_taken, pieces)):
            return False
        try:
            self.allowed()
        except MlxcelError:
            return False
        return True

    def _has_taken(self, piece: Piece) -> bool:
        """As the token it is, else as text: grammars have words for what is a token of its own."""
        if piece.token is not None and self.grammar.try_consume_tokens([piece.token]) == 1:
            return True
        assert self._speech is not None, "only what sleeps begins with something"
        ids = spelled(piece.text, self._speech)
        return ids is not None and self.grammar.try_consume_tokens(ids) == len(ids)

    def _check(self) -> None:
        if self._slow_s > SLOW_ENOUGH_S:
            raise BadRequest(
                "the grammar or schema takes too long to follow: other answers wait for it; "
                "make it simpler, above all where several rules begin alike"
            )
        if not self.grammar.is_error():
            return
        why = self.grammar.get_error()
        log.warning("constrained output failed: %s", why)
        if found := TOO_WIDE.search(why):
            raise BadRequest(
                f"the grammar goes on in {found[1]} ways at one place of the answer, at most "
                f"{found[2]} can be followed; make it smaller"
            )
        raise GenerationFailed("the constrained output cannot be continued")
