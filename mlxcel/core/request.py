"""What a client wants, free of any dialect: prompts, sampling, one request type."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mlxcel.core.settings import Settings


class Dry(msgspec.Struct, frozen=True, kw_only=True):
    """Don't Repeat Yourself: a token that would lengthen a repetition of the last tokens, which
    is `allowed_length` or longer already, is made less likely."""

    multiplier: float
    base: float
    allowed_length: int
    window: int
    """Tokens looked back; 0: off."""
    breakers: tuple[int, ...] = ()
    """Token ids that no repetition reaches across."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How a row draws its tokens; every default is the neutral value.

    The chain: bias, penalties, DRY; then top-n-sigma, top-k, typical, top-p, min-p and XTC on the
    untempered distribution; then temperature and the draw. `temperature` 0 (or `top_k` 1) is
    greedy. `seed` is a uint32; the draw of output position i depends on (seed, i) alone.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_spared: tuple[int, ...] = ()
    """Tokens XTC never takes away: newlines and ends of text."""
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = 64
    """Tokens the three penalties look back; 0: off."""
    dry: Dry | None = None
    bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of these tokens; minus infinity bans one."""
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @property
    def has_penalties(self) -> bool:
        is_neutral = (
            self.repetition_penalty == 1
            and self.frequency_penalty == 0
            and self.presence_penalty == 0
        )
        return self.penalty_window > 0 and not is_neutral

    @property
    def history_width(self) -> int:
        """How many of the last tokens the next draw depends on."""
        penalised = self.penalty_window if self.has_penalties else 0
        return max(penalised, 0 if self.dry is None else self.dry.window)


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
    dry_breakers: tuple[str, ...] = ()
    """Texts no repetition reaches across, for `sampling.dry`; those of the request are ids."""
    received_s: float
    """`time.monotonic()` at arrival."""
