"""What a client wants, free of any dialect: prompts, sampling, one request type."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mlxcel.core.settings import Settings


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How a row draws its tokens; every default is the neutral value.

    The chain is top-k, top-p, min-p on the untempered distribution, then temperature, then
    the draw. `temperature` 0 (or `top_k` 1) is greedy. `seed` is a uint32; the draw of output
    position i depends on (seed, i) alone.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call an earlier assistant turn made; `arguments` is JSON text, as on the wire."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation. Text parts are already joined into `text`."""

    role: str
    text: str = ""
    name: str | None = None
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """Messages for the chat template; `kwargs` go to the template over the server's own."""

    messages: tuple[Message, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request for text. `settings` is the snapshot taken on arrival."""

    id: str
    prompt: ChatPrompt
    settings: Settings
    sampling: SamplingParams
    max_tokens: int
    """Upper bound of output tokens; a full context window ends the answer earlier."""
    stop: tuple[str, ...] = ()
    received_s: float
    """`time.monotonic()` at arrival."""
