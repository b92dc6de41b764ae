"""A chat route while conversations are on: the fields of the seed around those of the dialect.

Works around what any codec has read, and changes nothing of what the codec understood.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.cache import ANONYMOUS, CacheUse
from mlxcel.core.events import Event, Finished, ReasoningDelta, Timings, Usage
from mlxcel.core.request import ChatPrompt, GenerationRequest
from mlxcel.protocols.base import Head, Read, SseFrame, StreamEncoder, ignored_tools
from mlxcel.protocols.kamiwaza.asked import read_asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRead:
    inner: Read
    request: GenerationRequest

    @property
    def stream(self) -> bool:
        return self.inner.stream

    @property
    def requests(self) -> Sequence[GenerationRequest]:
        return (self.request,)

    @property
    def ping_s(self) -> float | None:
        return self.inner.ping_s

    @property
    def is_counted(self) -> bool:
        return self.inner.is_counted

    @property
    def ignored_tools(self) -> Sequence[str]:
        return ignored_tools(self.inner)

    def encoder(self, head: Head) -> StreamEncoder:
        return UsageEncoder(self.inner.encoder(head))

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]:
        body = self.inner.answer(head, answer)
        thinks = any(choice.reasoning for choice in answer.choices)
        usage = _union(body["usage"], answer.usage, answer.timings, thinks=thinks)
        conversation = self.request.cache.conversation
        named = {} if conversation is None else {"metadata": {"conversation_id": conversation}}
        return body | {"usage": usage} | named


def with_conversation(
    inner: Read, body: Mapping[str, Any], *, named: str | None, address: str | None
) -> Read:
    """`named` is the conversation that the head of a request names, for a body that names none;
    `address` that of whoever names nothing: a request in the name of a session is of no
    conversation then, since two sessions behind one address share nothing. What is no chat is of no
    conversation, and stays as it is. Raises BadField."""
    request = inner.requests[0]
    if not isinstance(request.prompt, ChatPrompt):
        return inner
    asked = read_asked(body)
    chosen = named if asked.id is None else asked.id
    if chosen is None and request.cache.session == ANONYMOUS:
        chosen = address
    cache = CacheUse(
        is_on=request.cache.is_on and not asked.is_reset,
        session=request.cache.session,
        conversation=chosen,
        is_reset=asked.is_reset,
    )
    return ConversationRead(inner=inner, request=replace(request, cache=cache))


class UsageEncoder:
    """The frames of another encoder; where one carries usage, the seed's keys stand in it too."""

    def __init__(self, inner: StreamEncoder) -> None:
        self._inner = inner
        self._thinks = False

    def encode(self, event: Event) -> Iterable[SseFrame]:
        self._thinks = self._thinks or isinstance(event, ReasoningDelta)
        frames = self._inner.encode(event)
        return map(self._with_union(event), frames) if isinstance(event, Finished) else frames

    def _with_union(self, event: Finished) -> Callable[[SseFrame], SseFrame]:
        def add(frame: SseFrame) -> SseFrame:
            if isinstance(frame.data, str) or "usage" not in frame.data:
                return frame
            usage = _union(frame.data["usage"], event.usage, event.timings, thinks=self._thinks)
            return replace(frame, data={**frame.data, "usage": usage})

        return add


def _union(
    body: Mapping[str, Any], usage: Usage, timings: Timings, *, thinks: bool
) -> dict[str, Any]:
    """Both spellings of usage; what a dialect counts in its own way stays as it is. The rate is
    that of the answer over the whole wall time; the seed's own server counts the prompt as said
    too."""
    seconds = timings.total_ms / 1000
    details = {} if thinks else {"output_tokens_details": {"reasoning_tokens": 0}}
    return {
        **body,
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "tokens_per_second": round(usage.completion_tokens / seconds, 3) if seconds > 0 else 0.0,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        # Tokens of thinking are not counted: where there are any, the key is left out.
        **details,
        **body,
    }
