"""One answer of a request: its tokens become text, a stop string may end it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mlxcel.core.events import ChoiceFinished, Event, FinishReason, TextDelta, ToolCallDelta
from mlxcel.generation.likelihood import Reader
from mlxcel.generation.lines import LineLimits
from mlxcel.generation.show import Delta, Presenter
from mlxcel.generation.thoughts import ThoughtCounter
from mlxcel.link.messages import RowTokens, TokenScores
from mlxcel.text.detokenize import Detokenizer
from mlxcel.text.stops import StopMatcher

LIMITS = (
    FinishReason.LENGTH,
    FinishReason.CONTEXT,
    FinishReason.INDENT,
    FinishReason.TIME,
)
"""They end an answer in mid-sentence."""


class ChoiceAssembler:
    """`has_ended` once ChoiceFinished was said; further tokens are not for it."""

    def __init__(
        self,
        choice: int,
        *,
        detokenizer: Detokenizer,
        stops: StopMatcher,
        presenter: Presenter,
        likelihood: Reader,
        lines: LineLimits | None = None,
        tells_ids: bool = False,
        thoughts: ThoughtCounter | None = None,
    ) -> None:
        self._choice = choice
        self._detokenizer = detokenizer
        self._stops = stops
        self._presenter = presenter
        self._likelihood = likelihood
        self._lines = lines
        self._tells_ids = tells_ids
        self._thoughts = thoughts
        self._untold: list[int] = []
        """Tokens since the last delta, where they are told."""
        self.tokens = 0
        """Those said, up to the one that completed a stop."""
        self.has_ended = False

    @property
    def reasoning_tokens(self) -> int | None:
        """Of `tokens`; None: they are not told apart."""
        return None if self._thoughts is None else self._thoughts.tokens

    def take(self, row: RowTokens) -> Iterator[Event]:
        """Nothing may be taken after the end."""
        for ids, scores in _steps(row):
            before = self.tokens
            text, stop = self._read(ids, is_forced=row.is_forced)
            text, cut = (text, None) if self._lines is None else self._lines.feed(text)
            deltas = self._presenter.feed(text)
            if scores is not None and self.tokens > before:
                deltas = self._with_scores(deltas, ids, scores)
            yield from self._with_ids(deltas, ids)
            if cut is not None:
                yield from self._finish(cut, None)
                return
            if stop is not None:
                yield from self._finish(FinishReason.STOP, stop)
                return

    def end(self, reason: FinishReason) -> Iterator[Event]:
        """The worker has no more tokens for it."""
        text, stop = self._rest()
        yield from self._with_ids(self._presenter.feed(text), ())
        yield from self._finish(reason if stop is None else FinishReason.STOP, stop)

    def _read(self, ids: Sequence[int], *, is_forced: bool) -> tuple[str, str | None]:
        if is_forced:
            return self._read_forced(ids)
        # Token by token: the count of an answer ends with the token that completed a stop.
        parts = []
        for token in ids:
            self._count(token)
            text, stop = self._stops.feed(self._detokenizer.feed((token,)))
            parts.append(text)
            if stop is not None:
                return "".join(parts), stop
        return "".join(parts), None

    def _read_forced(self, ids: Sequence[int]) -> tuple[str, str | None]:
        """What the model did not choose is no match, nor a part of one: what is held back
        before it is decided now."""
        text, stop = self._stops.flush()
        if stop is not None:
            return text, stop
        for token in ids:
            self._count(token)
        return text + self._detokenizer.feed(ids), None

    def _count(self, token: int) -> None:
        self.tokens += 1
        if self._thoughts is not None:
            self._thoughts.feed(token)

    def _rest(self) -> tuple[str, str | None]:
        """What both were holding back; nothing follows, so it is decided now."""
        text, stop = self._stops.feed(self._detokenizer.flush())
        if stop is not None:
            return text, stop
        tail, stop = self._stops.flush()
        return text + tail, stop

    def _with_scores(
        self, deltas: list[Delta], ids: Sequence[int], scores: Sequence[TokenScores]
    ) -> list[Delta]:
        entries = self._likelihood(ids, scores)
        if not deltas:
            return [TextDelta("", self._choice, entries)]
        return [*deltas[:-1], replace(deltas[-1], logprobs=entries)]

    def _with_ids(self, deltas: list[Delta], ids: Sequence[int]) -> list[Delta]:
        """On the last of the deltas; without any they wait for the next one."""
        if not self._tells_ids:
            return deltas
        self._untold += ids
        if not deltas or not isinstance(deltas[-1], TextDelta):
            return deltas
        told, self._untold = tuple(self._untold), []
        return [*deltas[:-1], replace(deltas[-1], ids=told)]

    def _finish(self, reason: FinishReason, stop: str | None) -> Iterator[Event]:
        self.has_ended = True
        rest = self._presenter.finish(is_cut=reason in LIMITS)
        yield from rest
        if self._untold:
            yield TextDelta("", self._choice, ids=tuple(self._untold))
        has_calls = any(isinstance(event, ToolCallDelta) for event in rest)
        if has_calls and not self._presenter.lost_half_call:
            reason, stop = FinishReason.TOOL_CALLS, None
        yield ChoiceFinished(reason, self._choice, stop, self._presenter.is_reasoning_only)


def _steps(row: RowTokens) -> Iterator[tuple[Sequence[int], Sequence[TokenScores] | None]]:
    """All tokens at once; one by one where each has scores to go with its own text."""
    if row.scores is None:
        yield row.ids, None
        return
    for token, score in zip(row.ids, row.scores, strict=True):
        yield (token,), (score,)
