"""Whether this interpreter is a worker's own process, where ending it costs nobody else."""

_is_own = False


def claim_process() -> None:
    """Called once by `python -m mlxcel.worker`."""
    global _is_own
    _is_own = True


def is_own_process() -> bool:
    return _is_own
