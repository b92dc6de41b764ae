"""What a dialect is: a codec per generation route, and one shape for errors.

Route rows name both: `codec: openai.chat` is `mlxcel.protocols.openai.chat`, `dialect: openai`
takes its error shape from `mlxcel.protocols.openai.errors`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mlxcel.core.answer import Answer
from mlxcel.core.errors import ErrorInfo
from mlxcel.core.events import Event
from mlxcel.core.request import GenerationRequest, Lane
from mlxcel.core.settings import FixedDefaults, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRules:
    """What the server says about fields whose rules are set at startup."""

    require_model: bool
    served: tuple[str, ...]
    """Never empty."""
    refuse_unknown: bool
    fixed: FixedDefaults = field(default_factory=FixedDefaults)
    lacks_fim: tuple[str, ...] = ()
    """As in `ServedModel`, like the next."""
    fim_words: tuple[str, ...] = ()
    merged_lora: Mapping[int, float] | None = None
    """The scales of adapters that cannot be changed; None: they can."""
    window: int = 0
    """Tokens a slot holds; 0: unbounded or not known yet."""
    reasoning_alias: str | None = "reasoning"
    """A second name under which answers repeat `reasoning_content`."""
    strict_tools: bool = False
    """Tools of a kind that cannot be run here are refused, not left out."""
    pins_stamp: bool = True
    """The billing stamp of Claude Code reads the same in every request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What every body of one answer repeats."""

    id: str
    created: int
    """Unix seconds."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SseFrame:
    """One server-sent event. `data` is a JSON object, or text that goes out as it is."""

    data: Mapping[str, Any] | str
    event: str | None = None


class StreamEncoder(Protocol):
    """Turns the events of one request into frames, in order. `Failed` is an event as well:
    its frames end the stream in a way that no client takes for success."""

    def encode(self, event: Event) -> Iterable[SseFrame]: ...


class Read(Protocol):
    """A request as a dialect understood it, and how that dialect answers it."""

    @property
    def requests(self) -> Sequence[GenerationRequest]:
        """Never empty. Several are answered together: their choices are counted through."""
        ...

    @property
    def stream(self) -> bool: ...

    @property
    def ping_s(self) -> float | None:
        """Seconds of silence before a keep-alive comment, where the client says so; 0: none;
        None: what the server says."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether the answer counts in the metrics of requests."""
        ...

    def encoder(self, head: Head) -> StreamEncoder: ...

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]: ...


def ignored_tools(read: Read) -> Sequence[str]:
    """Of a request: the kinds of tools that were left out, since nothing here can run them."""
    found: Sequence[str] = getattr(read, "ignored_tools", ())
    return found


class Codec(Protocol):
    """One generation route of a dialect; a module fits."""

    ID_PREFIX: str
    """How the ids of its answers begin."""

    def read(
        self,
        body: Mapping[str, Any],
        *,
        request_id: str,
        settings: Settings,
        received_s: float,
        rules: ReadRules,
        lane: Lane = Lane.NORMAL,
    ) -> Read: ...


class Dialect(Protocol):
    """How a family of routes shows errors; a module fits."""

    def error_body(self, error: ErrorInfo) -> dict[str, Any]: ...
