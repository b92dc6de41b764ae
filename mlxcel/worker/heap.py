"""What glibc does with memory that is given back.

A decode step on a CPU frees and asks again for arrays of several megabytes. By default glibc hands
such memory to the system at once, and each step pays for fresh pages: 8 % of a step of SmolLM2 with
16 rows, and three quarters of its time in the kernel.
"""

import ctypes
import sys
from typing import Any

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEPT = 1 << 30
"""Bytes that may lie free at the top of the heap."""
PAD = 64 << 20
MAPPED = 32 << 20
"""Larger arrays than this are mapped by themselves; glibc allows no higher bound."""


def keep_freed_pages() -> bool:
    """False where the C library is another one."""
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return False
    wishes = ((M_TRIM_THRESHOLD, KEPT), (M_TOP_PAD, PAD), (M_MMAP_THRESHOLD, MAPPED))
    granted = [mallopt(name, value) for name, value in wishes]
    return all(granted)


def return_freed_pages() -> bool:
    """To the system, all that lie free now: for memory that is not asked for again at once. False
    where the C library is another one."""
    trim = _glibc("malloc_trim")
    if trim is None:
        return False
    trim(ctypes.c_size_t(0))
    return True


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
