"""What a model folder says of itself before anything is loaded: the facts a plan needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    name: str
    """The folder's own name."""
    family: str
    """`model_type` of config.json."""
    train_window: int
    """Tokens the model was trained on, position scaling included; 0: the checkpoint is silent."""
    can_batch: bool = True
    reason: str = ""
    """Why rows cannot run together, where they cannot."""
    quantization_bits: int | None = None
    sampling: Mapping[str, float | int] = field(default_factory=dict)
    """temperature, top_k and top_p of generation_config.json, where they are there."""
