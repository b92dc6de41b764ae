"""A folder that appears whole or not at all, made once however many processes ask for it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from mlxcel.core.errors import StartupError
from mlxcel.store.progress import Progress
from mlxcel.store.space import full_disk_named

WAIT_NOTE_EVERY_S = 2.0


def made_once(
    target: Path, fill: Callable[[Path], None], progress: Progress, *, keep_partial: bool = False
) -> Path:
    """Have `fill` write a folder that is then renamed to `target`; returns `target`.

    Whoever comes second waits and finds it done. A process that is killed leaves its folder
    beside the store's models and its lock is released by the kernel: the next one starts afresh,
    or goes on from what is there with `keep_partial`.
    """
    if target.is_dir():
        return target
    staging = target.parent / ".partial" / target.name
    with full_disk_named(target.parent), _locked(target, progress):
        if target.is_dir():
            return target
        if staging.exists() and not keep_partial:
            shutil.rmtree(staging)
        staging.mkdir(parents=True, exist_ok=True)
        fill(staging)
        os.replace(staging, target)
    return target


def _locked(target: Path, progress: Progress) -> FileLock:
    """An acquired lock, to be released by `with`. Kernel locks: they end with their process."""
    folder = target.parent / ".locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise StartupError(
            f"the model store {target.parent} cannot be written: {why.strerror}; "
            "choose another with --models-dir (model.store_root)"
        ) from why
    lock = FileLock(folder / f"{target.name}.lock")
    while True:
        try:
            lock.acquire(timeout=WAIT_NOTE_EVERY_S)
        except Timeout:
            progress(f"waiting for another process that prepares {target.name}", None)
        else:
            break
    return lock
