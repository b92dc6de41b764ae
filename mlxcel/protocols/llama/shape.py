"""How one native completion wants its answer shown."""

from dataclasses import dataclass

from mlxcel.core.request import GenerationRequest
from mlxcel.core.settings import FixedDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    request: GenerationRequest
    fixed: FixedDefaults
    prompt: str
    """As it was sent."""
    stream: bool
    n_predict: int
    """As it was asked for."""
    is_seed_random: bool
    has_timings: bool
    """Every frame of a stream carries timings."""
    paths: tuple[str, ...]
    """Of the values that are wanted of the final object; empty: all."""

    @property
    def has_probabilities(self) -> bool:
        return self.request.top_logprobs is not None
