"""What a model folder says of itself before anything is loaded: the facts a plan needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One model, as plain facts. A count of 0 means that the checkpoint does not say."""

    name: str
    """The folder's own name, which is what the model is called without an alias."""
    directory: Path | None
    """None: there are no weights on disk (the echo model)."""
    family: str
    """`model_type` of config.json."""
    train_window: int
    """Tokens the model was trained on, position scaling included."""
    vocab_size: int
    hidden_size: int = 0
    layers: int = 0
    can_batch: bool = True
    reason: str = ""
    """Why rows cannot run together, where they cannot."""
    dtype: str = ""
    """The float type that holds most of the weights: `BF16`, as safetensors spells it."""
    quantization_bits: int | None = None
    weights_bytes: int = 0
    eos_ids: tuple[int, ...] = ()
    sampling: Mapping[str, float | int] = field(default_factory=dict)
    """temperature, top_k and top_p of generation_config.json, where they are there."""
