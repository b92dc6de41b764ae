"""Answers of /v1/completions as a stream of chunks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from mlxcel.core.events import (
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    PromptScored,
    PromptToken,
    TextDelta,
    TokenLogprobs,
)
from mlxcel.protocols.base import Head, SseFrame
from mlxcel.protocols.openai.answer import FINISH, timings_body, usage_body
from mlxcel.protocols.openai.chunks import DONE
from mlxcel.protocols.openai.errors import error_body
from mlxcel.protocols.openai.text_answer import text_choice, text_head
from mlxcel.protocols.openai.text_logprobs import TextLogprobs


class CompletionEncoder:
    """Chunks of one stream; none opens it. A failure is an error frame and the end: no `[DONE]`,
    no reason.

    The choice that ends last waits for `Finished`: its finish chunk carries the timings. Scores of
    a prompt wait for the text they belong to.
    """

    def __init__(self, head: Head, *, choices: int, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        self._running = choices
        self._last: ChoiceFinished | None = None
        self._logprobs: defaultdict[int, TextLogprobs] = defaultdict(TextLogprobs)
        self._scored: dict[int, tuple[PromptToken, ...]] = {}

    def encode(self, event: Event) -> Iterator[SseFrame]:
        match event:
            case PromptScored(tokens, choice):
                self._scored[choice] = tokens
            case TextDelta(text, choice, logprobs):
                yield from self._text(choice, text, logprobs)
            case ChoiceFinished():
                yield from self._choice_finished(event)
            case Finished():
                yield from self._closing(event)
            case Failed(error):
                yield SseFrame(data=error_body(error))

    def _text(
        self, choice: int, text: str, said: Sequence[TokenLogprobs] = ()
    ) -> Iterator[SseFrame]:
        scored = self._scored.pop(choice, ())
        has_scores = bool(scored or said)
        if not text and not has_scores:
            return
        logprobs = self._logprobs[choice].body(scored, said) if has_scores else None
        yield SseFrame(data=self._chunk([text_choice(choice, text, None, logprobs)]))

    def _choice_finished(self, event: ChoiceFinished) -> Iterator[SseFrame]:
        yield from self._text(event.choice, "")
        self._running -= 1
        if self._running:
            yield SseFrame(data=self._finish(event))
        else:
            self._last = event

    def _closing(self, event: Finished) -> Iterator[SseFrame]:
        assert self._last is not None, "every choice ends before the request does"
        timings = timings_body(event.usage, event.timings)
        yield SseFrame(data=self._finish(self._last) | {"timings": timings})
        if self._include_usage:
            yield SseFrame(data=self._chunk([]) | {"usage": usage_body(event.usage)})
        yield DONE

    def _finish(self, event: ChoiceFinished) -> dict[str, Any]:
        return self._chunk([text_choice(event.choice, "", FINISH[event.reason], None)])

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return text_head(self._head) | {"choices": choices}
