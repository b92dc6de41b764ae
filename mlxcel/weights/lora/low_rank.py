"""The low-rank part that an adapter adds to one layer."""

from dataclasses import dataclass

import mlx.core as mx

EXPERTS_NDIM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """Adds `factor * (x @ down) @ up`. The arrays lie as mlx-lm writes them: `[in, r]` and
    `[r, out]` for a linear layer, `[ids, r]` and `[r, out]` for an embedding,
    `[experts, r, in]` and `[experts, out, r]` for a layer of experts."""

    layer: str
    down: mx.array
    up: mx.array
    factor: float
    """What the adapter was trained with: alpha / r."""

    @property
    def rank_axes(self) -> tuple[int, int]:
        """Where `down` and `up` have their rank."""
        return (1, 2) if self.down.ndim == EXPERTS_NDIM else (1, 0)

    @property
    def rank(self) -> int:
        return int(self.down.shape[self.rank_axes[0]])
