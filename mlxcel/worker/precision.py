"""What the weights are held in, decided once at load (pure).

The fastest form differs by a factor of ten between backends: a quantised checkpoint runs at
0.2 tokens a second on a Linux CPU and a dense one at 17; on an H200 at batch 64, 4-bit weights
give 284 tokens a second and bfloat16 3,274; Metal is fastest with weights as stored.
"""

from dataclasses import dataclass
from enum import StrEnum


class Backend(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"


DENSE_MEMORY_SHARE = 0.6
"""Dense weights may take this share of the device's memory; the rest is KV and activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the decision rests on. `dense_bytes` is the size of the weights in 16 bits."""

    backend: Backend
    batch: int
    is_quantised: bool
    dense_bytes: int
    memory_bytes: int | None
    """What the device has for weights; None where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """`dtype` None means: as stored. `reason` is for the log, the graph and /props."""

    dtype: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.dtype or 'as stored'} ({self.reason})"


def decide(asked: str, facts: Facts) -> Precision:
    """`asked` is `auto`, `as-stored`, `float32`, `bfloat16` or `float16`."""
    if asked == "as-stored":
        return Precision(dtype=None, reason="asked for")
    if asked != "auto":
        return Precision(dtype=asked, reason="asked for")
    if facts.backend is Backend.CPU:
        return Precision(dtype="float32", reason="cpu: half and quantised arithmetic is slow")
    if facts.backend is Backend.METAL:
        return Precision(dtype=None, reason="metal: fastest as stored")
    return _on_cuda(facts)


def _on_cuda(facts: Facts) -> Precision:
    if not facts.is_quantised:
        return Precision(dtype=None, reason="cuda: already dense")
    if facts.batch <= 1:
        return Precision(dtype=None, reason="cuda: one row is fastest quantised")
    if facts.memory_bytes is None:
        return Precision(dtype=None, reason="cuda: its memory is unknown")
    if facts.dense_bytes > DENSE_MEMORY_SHARE * facts.memory_bytes:
        return Precision(dtype=None, reason="cuda: dense weights would not fit")
    return Precision(dtype="bfloat16", reason="cuda: batches are fastest dense")
