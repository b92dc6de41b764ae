"""How far a download is, told from the size of the folder it fills: right for every client."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlxcel.store.progress import Progress

LOOK_EVERY_S = 0.5


@contextmanager
def watched(folder: Path, total_bytes: int, label: str, progress: Progress) -> Iterator[None]:
    """Report the growth of `folder` while the block runs, and its end when it ends well."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            progress(label, min(folder_bytes(folder) / max(total_bytes, 1), 0.99))

    watcher = threading.Thread(target=look, name="download-watch", daemon=True)
    progress(label, 0.0)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    progress(label, 1.0)


def folder_bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        # A file may be renamed between the listing and the look at it.
        with suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total
