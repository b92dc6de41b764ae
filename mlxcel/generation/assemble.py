"""From a worker's rows to the events of a request.

Plain and synchronous: one `Assembler` per request, fed in order by the service.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic

from msgspec.structs import replace

from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    PromptProgress,
    PromptScored,
    PromptToken,
    Started,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from mlxcel.core.request import ChatPrompt, GenerationRequest
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.choice import ChoiceAssembler
from mlxcel.generation.explain import Says, explainer
from mlxcel.generation.likelihood import prompt_reader, reader
from mlxcel.generation.lines import line_limits
from mlxcel.generation.prepare import Prepared
from mlxcel.generation.show import Presenter
from mlxcel.generation.thoughts import ThoughtCounter
from mlxcel.link.messages import (
    RowAccepted,
    RowEnded,
    RowEvent,
    RowFailed,
    RowFinished,
    RowPaused,
    RowProgress,
    RowPrompt,
    RowStarted,
    RowTokens,
    TokenScores,
    unpack_tokens,
)
from mlxcel.text.reasoning import ReasoningSplitter
from mlxcel.text.stops import StopMatcher
from mlxcel.text.thinking import Marks
from mlxcel.text.tools.filter import ToolFilter

log = logging.getLogger(__name__)

Clock = Callable[[], float]
ReadsPrompt = Callable[[Sequence[TokenScores]], tuple[PromptToken, ...]]


class Assembler:
    """`is_done` once Finished or Failed was said; rows may still run then: cancel the request."""

    def __init__(
        self,
        choices: Sequence[ChoiceAssembler],
        *,
        prompt_tokens: int,
        received_s: float,
        echoed: str = "",
        needs_call: bool = False,
        says: Says,
        reads_prompt: ReadsPrompt | None = None,
        clock: Clock = monotonic,
    ) -> None:
        """`echoed` is told before each answer. `needs_call`: one without a call is logged. `says`
        puts the ids of a cache report into words, `reads_prompt` the scores of a prompt."""
        self._choices = choices
        self._prompt_tokens = prompt_tokens
        self._received_s = received_s
        self._echoed = echoed
        self._needs_call = needs_call
        self._says = says
        self._reads_prompt = reads_prompt
        self._scores: list[TokenScores] = []
        """Of the prompt, from its second token on."""
        self._clock = clock
        self._running = set(range(len(choices)))
        """Those the worker still has tokens for."""
        self._was_cut = False
        """An answer ended before its tokens did."""
        self._cut: list[int] = []
        self._has_cache = False
        self._started: RowStarted | None = None
        self._is_paused = False
        self._first_token_s = 0.0
        self.is_done = False

    @property
    def is_decoding(self) -> bool:
        """Tokens come: silence means trouble."""
        return self._started is not None and not self._is_paused

    def take_cut(self) -> list[int]:
        """The choices that ended before their tokens did, since this was last asked: the worker
        need not go on with them."""
        cut, self._cut = self._cut, []
        return cut

    def take(self, row: RowEvent) -> Iterator[Event]:
        match row:
            case RowAccepted(cache=report):
                self._has_cache = report is not None
                yield Accepted(self._prompt_tokens, self._says(report))
                if self._reads_prompt is None:
                    yield from self._echo()
            case RowProgress():
                yield PromptProgress(
                    total=row.total,
                    cached=row.cached,
                    processed=row.processed,
                    took_ms=row.took_ms,
                )
            case RowPrompt(scores=scores):
                self._scores += scores
            case RowStarted(cache=report):
                self._started = replace(row, cache=self._says(report))
                self._first_token_s = self._clock()
                yield from self._scored()
                cached = None if report is None else report.reused
                yield Started(row.queued_ms, row.prompt_ms, cached)
            case RowPaused():
                self._is_paused = True
            case RowTokens(id=name, choice=choice):
                self._is_paused = False
                answer = self._choices[choice]
                if not answer.has_ended:
                    yield from self._told(name, answer.take(row))
                    if answer.has_ended:
                        self._was_cut = True
                        self._cut.append(choice)
                        yield from self._stopped()
            case RowEnded(id=name, choice=choice):
                self._running.discard(choice)
                yield from self._scored()
                if not self._choices[choice].has_ended:
                    yield from self._told(name, self._choices[choice].end(row.reason))
                yield from self._stopped()
            case RowFinished():
                self.is_done = True
                yield self._finished(row)
            case RowFailed(error=error):
                self.is_done = True
                yield Failed(error)

    def _echo(self) -> Iterator[Event]:
        if self._echoed:
            for choice in range(len(self._choices)):
                yield TextDelta(self._echoed, choice)

    def _scored(self) -> Iterator[Event]:
        """Once the whole prompt is scored, and nothing was told of an answer yet. The prompt itself
        is told behind its scores."""
        reads, self._reads_prompt = self._reads_prompt, None
        if reads is None:
            return
        tokens = reads(self._scores)
        for choice in range(len(self._choices)):
            yield PromptScored(tokens, choice)
        yield from self._echo()

    def _told(self, name: str, events: Iterator[Event]) -> Iterator[Event]:
        has_call = False
        for event in events:
            has_call |= isinstance(event, ToolCallDelta)
            if self._needs_call and isinstance(event, ChoiceFinished) and not has_call:
                log.warning("%s: tool_choice asks for a call, the answer has none", name)
            yield event

    def _stopped(self) -> Iterator[Event]:
        """Once all answers have ended and the worker, which knows nothing of stop strings, goes
        on with one of them. Where it does not, its own last word comes next."""
        if self._running and all(choice.has_ended for choice in self._choices):
            self.is_done = True
            yield Finished(self._own_usage(), self._own_timings())

    def _finished(self, row: RowFinished) -> Finished:
        usage = row.usage
        if self._was_cut:
            # The worker's count holds what came after a stop string.
            usage = replace(usage, completion_tokens=self._said())
        if usage.cached_tokens is None and self._has_cache:
            usage = replace(usage, cached_tokens=0)  # nothing had to be read at all
        usage = replace(usage, reasoning_tokens=self._thought())
        report = self._says(row.timings.cache)
        return Finished(usage, replace(row.timings, total_ms=self._total_ms(), cache=report))

    def _said(self) -> int:
        return sum(choice.tokens for choice in self._choices)

    def _thought(self) -> int | None:
        counts = [choice.reasoning_tokens for choice in self._choices]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def _own_usage(self) -> Usage:
        """The worker's last word is not there yet when a stop string ends the answer."""
        report = None if self._started is None else self._started.cache
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._said(),
            cached_tokens=None if report is None else report.reused,
            reasoning_tokens=self._thought(),
        )

    def _own_timings(self) -> Timings:
        assert self._started is not None, "a stop needs a token"
        return Timings(
            queued_ms=self._started.queued_ms,
            prompt_ms=self._started.prompt_ms,
            decode_ms=(self._clock() - self._first_token_s) * 1000,
            total_ms=self._total_ms(),
            cache=self._started.cache,
        )

    def _total_ms(self) -> float:
        return (self._clock() - self._received_s) * 1000


def assembler(
    request: GenerationRequest, prepared: Prepared, model: ChatModel, clock: Clock = monotonic
) -> Assembler:
    visible = model.visible(request)
    return Assembler(
        [_choice(place, request, prepared, model, visible) for place in range(request.choices)],
        prompt_tokens=prepared.prompt_tokens,
        received_s=request.received_s,
        echoed=prepared.echoed,
        needs_call=request.chat.tool_choice.is_forced and model.options.parses,
        says=explainer(model.text.vocabulary),
        reads_prompt=_prompt_reader(request, prepared, model),
        clock=clock,
    )


def _choice(
    place: int,
    request: GenerationRequest,
    prepared: Prepared,
    model: ChatModel,
    visible: Mapping[int, str],
) -> ChoiceAssembler:
    return ChoiceAssembler(
        place,
        detokenizer=model.text.detokenizer(at_start=not prepared.continues, visible=visible),
        stops=StopMatcher(request.stop),
        presenter=Presenter(
            place,
            splitter=_splitter(prepared, model),
            calls=_calls(request, model),
            form=model.options.format,
        ),
        likelihood=reader(model.text.vocabulary),
        lines=line_limits(request),
        tells_ids=request.tells_ids,
        thoughts=_thoughts(prepared, model),
    )


def _prompt_reader(
    request: GenerationRequest, prepared: Prepared, model: ChatModel
) -> ReadsPrompt | None:
    if not request.scores_prompt:
        return None
    ids = unpack_tokens(prepared.submit.tokens)
    return partial(prompt_reader(model.text.vocabulary), ids)


def _marks(prepared: Prepared, model: ChatModel) -> Marks | None:
    """Those by which thoughts are told apart in the answers to a request."""
    is_chat = isinstance(prepared.request.prompt, ChatPrompt)
    return model.marks if model.options.parses and is_chat else None


def _thoughts(prepared: Prepared, model: ChatModel) -> ThoughtCounter | None:
    marks = _marks(prepared, model)
    if marks is None:
        return None
    return ThoughtCounter(marks.open_ids, marks.close_ids, is_open=prepared.is_open)


def _splitter(prepared: Prepared, model: ChatModel) -> ReasoningSplitter | None:
    marks = _marks(prepared, model)
    if marks is None:
        return None
    return ReasoningSplitter(
        marks.opening,
        marks.closing,
        is_open=prepared.is_open,
        is_fresh=not prepared.continues,
        hides_closing=marks.hides_closing,
    )


def _calls(request: GenerationRequest, model: ChatModel) -> ToolFilter | None:
    if not model.reads_calls(request.chat):
        return None
    return ToolFilter(model.tool_format, request.chat.tools, request.chat.tool_choice)
