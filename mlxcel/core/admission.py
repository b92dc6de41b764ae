"""When a worker takes no more requests: one rule for the client in the front and the worker."""


def is_full(held: int, slots: int, depth: int) -> bool:
    """`held` counts every request a worker has not ended: rows, parked prompts, waiting ones.
    `depth` may wait beyond the `slots` that run."""
    return held >= slots + depth
