"""Whether processes are gone, seen from outside."""

import time

import psutil


def is_gone(pid: int) -> bool:
    """Ended; a zombie that nobody has collected counts."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def await_gone(pid: int, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_gone(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs after {timeout_s} s"
        time.sleep(0.02)
