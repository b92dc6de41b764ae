"""What a client wants, free of any dialect: prompts, sampling, one request type."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from mlxcel.core.cache import CacheUse
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.settings import Settings
from mlxcel.core.steering import LoopGuard


class Lane(IntEnum):
    """The queue a request waits in; a lower number goes first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class OutputKind(StrEnum):
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GBNF = "gbnf"
    LARK = "lark"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """What the answer must look like, as the client said it. `source` is the schema as JSON
    text, the expression or the grammar; "" for a JSON object. `param` is the field to blame."""

    kind: OutputKind
    source: str = ""
    param: str = "response_format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function the model may call. `parameters` is its JSON Schema; `sent` is the whole
    entry as the client wrote it, for the chat template."""

    name: str
    parameters: Mapping[str, Any]
    sent: Mapping[str, Any]


class ToolMode(StrEnum):
    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    mode: ToolMode = ToolMode.AUTO
    name: str = ""
    """Of the one function, for NAMED."""

    @property
    def is_forced(self) -> bool:
        return self.mode in (ToolMode.REQUIRED, ToolMode.NAMED)


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
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    echo: bool = False
    """An assistant turn at the end, which the answer continues, is told again before it."""


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
    choices: int = 1
    """Answers to one prompt, from one prefill. Choice c draws with seed + c."""
    lane: Lane = Lane.NORMAL
    top_logprobs: int | None = None
    """Log-probabilities of each token said and of so many likeliest ones; None: of none."""
    ignore_eos: bool = False
    loop: LoopGuard | None = None
    """None: what the settings say, else what the model's family needs."""
    thinking_budget: int | None = None
    """Tokens of thinking; -1: no cap; None: what the settings say."""
    output: OutputFormat | None = None
    lora: tuple[tuple[int, float], ...] | None = None
    """Adapter ids and their scales for this request, the others 0; None: those in force."""
    cache: CacheUse = field(default_factory=CacheUse)
    received_s: float
    """`time.monotonic()` at arrival."""
