"""A worker on a thread of the front: the loop, and the leave-taking MLX asks of a thread.

A thread that ran a compiled function and ends without `clear_streams` aborts the process at
exit (mlx 0.32.4: code 134, every time).
"""

import gc
import sys
from typing import Any

from mlxcel.link.messages import WorkerSpec
from mlxcel.worker import loop


def run(spec: WorkerSpec, receive: loop.Receive, send: loop.Send, pulse: loop.Pulse) -> int:
    try:
        return loop.run(spec, receive, send, pulse)
    finally:
        release_streams()


def release_streams() -> None:
    """Frees what the thread's worker left, then the thread's streams. Nothing without MLX."""
    mx: Any = sys.modules.get("mlx.core")
    if mx is None:
        return
    gc.collect()  # arrays in cycles must go while their stream lives
    mx.synchronize()
    mx.clear_streams()
