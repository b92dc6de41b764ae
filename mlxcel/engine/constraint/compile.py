"""Grammars made ready for one model: the library's view of its tokenizer, and matchers.

What a client sees of a failure here is a fixed text; the library's own words go to the log.
"""

import logging
from collections import OrderedDict
from pathlib import Path
from threading import Lock, Thread

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from mlxcel.core.errors import BadRequest, MlxcelError
from mlxcel.core.steering import Constraint
from mlxcel.engine.constraint.matcher import Matcher, Vocab
from mlxcel.engine.constraint.waking import Waker

log = logging.getLogger(__name__)

LIMITS = LLParserLimits(
    max_grammar_size=100_000,
    max_lexer_states=50_000,
    initial_lexer_fuel=200_000,
    verbose_errors=False,
)
"""Symbols and states: http-openai 5. The fuel bounds a compilation to about 0.1 s; the text of
verbose errors holds what was said."""

KEPT = 32
"""Compiled grammars: the same few come again and again."""


class Compiler:
    """May be used from several threads. `vocab_size` is the number of logits."""

    def __init__(self, tokenizer_file: Path, vocab_size: int) -> None:
        self._file = tokenizer_file
        self._size = vocab_size
        self._lock = Lock()
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def start(self) -> None:
        """Reads the tokenizer in the background, so that the first constraint need not wait."""
        Thread(target=self._warm, name="constraint-tokenizer", daemon=True).start()

    def matcher(self, constraint: Constraint, eos_ids: tuple[int, ...]) -> Matcher:
        """Waits for the tokenizer where it is not read yet. Raises BadRequest for a grammar that
        is beyond the limits, MlxcelError where the tokenizer cannot serve constraints."""
        with self._lock:
            tokenizer = self._ready()
            compiled = self._compiled.pop(constraint.grammar, None)
            if compiled is None:
                compiled = _compile(constraint.grammar, tokenizer)
            self._compiled[constraint.grammar] = compiled
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            own = compiled.deep_copy()
        vocab = Vocab(self._size, tokenizer.vocab_size, tuple(tokenizer.eos_tokens))
        triggers = constraint.triggers
        waker = Waker(triggers, lambda token: tokenizer.decode_bytes([token])) if triggers else None
        return Matcher(own, vocab, eos_ids, speech=tokenizer, waker=waker)

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for. Raises MlxcelError where the tokenizer cannot serve."""
        with self._lock:
            return self._ready().decode_bytes([token])

    def _warm(self) -> None:
        with self._lock:
            try:
                self._ready()
            except MlxcelError as error:
                log.info("%s", error.message)  # told again to each request that wants one

    def _ready(self) -> LLTokenizer:
        if self._tokenizer is None:
            self._tokenizer = _read_tokenizer(self._file, self._size)
        return self._tokenizer


def _compile(grammar: str, tokenizer: LLTokenizer) -> LLMatcher:
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    if matcher.is_error():
        log.warning("a grammar cannot be compiled: %s", matcher.get_error())
        raise BadRequest("the schema or grammar is too complex for constrained output")
    return matcher


def _read_tokenizer(file: Path, vocab_size: int) -> LLTokenizer:
    try:
        return _tokenizer(file.read_text(encoding="utf-8"), vocab_size)
    except (OSError, ValueError) as error:
        log.warning("%s cannot be used for constrained output: %s", file, error)
        raise MlxcelError(
            "constrained output is not available: the tokenizer of the model cannot serve it"
        ) from error


def _tokenizer(text: str, vocab_size: int) -> LLTokenizer:
    """The library wants an end of text and takes token 0 where it finds none, which is then lost
    as text: any special token is better."""
    tokenizer = _of_size(text, vocab_size, None)
    if tokenizer.is_special_token(tokenizer.eos_token):
        return tokenizer
    ids = range(tokenizer.vocab_size)
    special = next((token for token in ids if tokenizer.is_special_token(token)), None)
    return tokenizer if special is None else _of_size(text, vocab_size, special)


def _of_size(text: str, vocab_size: int, eos: int | None) -> LLTokenizer:
    try:
        return LLTokenizer(text, n_vocab=vocab_size, eos_token=eos)
    except ValueError as error:
        if "too small" not in str(error):
            raise
        return LLTokenizer(text, eos_token=eos)  # it has tokens that the model has no logit for
