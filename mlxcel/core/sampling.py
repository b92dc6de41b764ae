"""How a row draws its tokens, as plain data."""

import msgspec


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


class Mirostat(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps the surprise of the drawn tokens near a target (Basu et al., 2021); takes the place
    of penalties and truncation. The running bound mu starts at twice the target."""

    version: int
    """1 or 2."""
    rate: float
    target: float
    """Bits of surprise a token."""


class DynamicTemperature(msgspec.Struct, frozen=True, kw_only=True):
    """Temperature from [T - span, T + span], by normalised entropy ** exponent."""

    span: float
    exponent: float


class AdaptiveP(msgspec.Struct, frozen=True, kw_only=True):
    """Steers the probability of the drawn tokens, averaged with `decay`, to `target`."""

    target: float
    decay: float


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How a row draws its tokens; every default is the neutral value.

    The chain: bias, penalties, DRY, the mask of a constraint; then top-n-sigma, top-k, typical,
    top-p, min-p and XTC on the untempered distribution; then temperature and the draw.
    `temperature` 0 (or `top_k` 1) is greedy. `seed` is a uint32; the draw of output position i
    depends on (seed, i) alone.
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
    mirostat: Mirostat | None = None
    dynamic_temperature: DynamicTemperature | None = None
    adaptive: AdaptiveP | None = None
    min_keep: int = 0
    """Candidates that no truncation goes below; 0 and 1 mean the same."""
    bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of these tokens; minus infinity bans one."""
    wide_bias: bytes = b""
    """More of the same for tens of thousands of tokens (a language): `pack_bias`."""
    seed: int = 0

    def seeded(self, seed: int) -> "SamplingParams":
        return msgspec.structs.replace(self, seed=seed)

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
