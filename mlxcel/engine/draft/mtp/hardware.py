"""What MTP runs on: its name beside a verdict, and whether rounds are worth it unmeasured."""

import re

import mlx.core as mx

from mlxcel.worker.precision import Backend

APPLE = re.compile(r"applegpu_g(\d+)")
"""How Metal names an architecture: `applegpu_g15s` is a GPU of generation 15 (M3)."""
GENERATION = 15
"""From here on a step over a few tokens costs about what one over a single token does."""


def hardware_name() -> str:
    """Of MLX's default device: `Apple M3 Max (applegpu_g15s)`."""
    info = mx.device_info()
    return f"{info.get('device_name', 'unknown')} ({info.get('architecture', 'unknown')})"


def static_default(backend: Backend, *, is_batchable: bool) -> bool:
    """`is_batchable`: rows of the target can decode together; those that cannot have nothing else
    to win by."""
    if not is_batchable:
        return True
    if backend is not Backend.METAL:
        return False
    return is_new_apple(str(mx.device_info().get("architecture", "")))


def is_new_apple(architecture: str) -> bool:
    named = APPLE.match(architecture)
    return named is not None and int(named[1]) >= GENERATION
