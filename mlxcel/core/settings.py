"""The live settings as frozen values: what the rest of the program reads.

A snapshot is taken by reference when a request arrives and never changes afterwards. How it
is patched is known by `config.settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.output import OutputFormat
from mlxcel.core.sampling import AdaptiveP, DynamicTemperature, Mirostat
from mlxcel.core.steering import LoopGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """Values for the sampling fields a request leaves out."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    repetition_context_size: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: tuple[str, ...]
    seed: int | None
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDefaults:
    """The same for fields whose defaults are set at startup. Not part of a snapshot."""

    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat_version: int = 0
    """0: off. The two values below are for requests that switch it on, too."""
    mirostat_target: float = 5.0
    mirostat_rate: float = 0.1
    temperature_span: float = 0.0
    """0: off."""
    temperature_exponent: float = 1.0
    names_adaptive: bool = False
    """Adaptive-p is among the samplers."""
    adaptive_target: float = -1.0
    """Below 0: off, named or not."""
    adaptive_decay: float = 0.9
    bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    """For requests that bring no stop strings of their own."""
    output: OutputFormat | None = None
    """The form of answers to requests that ask for none, on routes that take grammars."""
    keep: int = 0
    """Prompt tokens that a full window never forgets; -1: all."""

    @property
    def mirostat(self) -> Mirostat | None:
        """None, like those below: off."""
        if not self.mirostat_version:
            return None
        return Mirostat(
            version=self.mirostat_version, rate=self.mirostat_rate, target=self.mirostat_target
        )

    @property
    def dynamic_temperature(self) -> DynamicTemperature | None:
        if self.temperature_span <= 0:
            return None
        return DynamicTemperature(span=self.temperature_span, exponent=self.temperature_exponent)

    @property
    def adaptive(self) -> AdaptiveP | None:
        if not self.names_adaptive or self.adaptive_target < 0:
            return None
        return AdaptiveP(target=self.adaptive_target, decay=self.adaptive_decay)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageBias:
    """How likely tokens of a script are made. `bias` keeps its order: the first language that
    claims a token owns it."""

    bias: tuple[tuple[str, float], ...]
    """Language codes and what is added to the logits of their tokens."""
    is_strict: bool = False
    """One letter of a language claims a token; else all of its letters must be."""
    include_special: bool = False
    include_numeric: bool = False
    include_punctuation: bool = False
    include_byte_fragments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One published snapshot. `fingerprint` is 64 hex digits over the mutable values."""

    version: int
    fingerprint: str
    sampling: SamplingDefaults
    decode_timeout_s: int
    """A row that has begun to decode and yields no token for this long is cancelled."""
    template_kwargs: Mapping[str, Any]
    reasoning_budget: int = -1
    """Tokens of thinking; -1: no cap."""
    loop: LoopGuard | None = None
    """None: what the model's family needs."""
    language: LanguageBias | None = None
