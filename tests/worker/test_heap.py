"""Memory that is given back stays at hand."""

import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource, sys
from mlxcel.worker.heap import keep_freed_pages
if sys.argv[1] == "kept":
    assert keep_freed_pages()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    block = libc.malloc(8 << 20)
    ctypes.memset(block, 1, 8 << 20)
    other = libc.malloc(24 << 20)
    ctypes.memset(other, 1, 24 << 20)
    libc.free(block)
    libc.free(other)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word: str) -> int:
    command = [sys.executable, "-c", FAULTS, word]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
def test_blocks_asked_for_again_cost_no_fresh_pages() -> None:
    assert faults("kept") < 0.7 * faults("default")


RESIDENT = """
import ctypes
from mlxcel.worker.heap import keep_freed_pages, return_freed_pages
def pages():
    return int(open("/proc/self/statm").read().split()[1])
keep_freed_pages()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
blocks = [libc.malloc(1 << 20) for _ in range(64)]
for block in blocks:
    ctypes.memset(block, 1, 1 << 20)
full = pages()
for block in blocks[:-1]:
    libc.free(block)
kept = pages()
assert return_freed_pages()
print(full - kept, full - pages())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
def test_pages_that_lie_free_are_returned_when_asked_for() -> None:
    command = [sys.executable, "-c", RESIDENT]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    before, after = (pages * 4096 for pages in map(int, told.split()))
    assert before < 1 << 20
    assert after > 60 << 20
