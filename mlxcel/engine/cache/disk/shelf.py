"""Which files there are, how large they are and when each was last used.

Files of the same identity that another server writes into the folder count as well.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlxcel.engine.cache.disk.run import start_and_mark


@dataclass(slots=True)
class Item:
    nbytes: int
    start: int
    """Tokens before the run."""
    used_ns: int
    """Since 1970: a file keeps it as its modification time."""


@dataclass(frozen=True, slots=True)
class Listing:
    ours: dict[str, Item]
    others: tuple[str, ...]
    """All other names in the folder."""


class Shelf:
    """Owned by the writing thread once it runs."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.nbytes = 0

    def add(self, name: str, item: Item) -> None:
        self.remove(name)
        self.items[name] = item
        self.nbytes += item.nbytes

    def remove(self, name: str) -> Item | None:
        item = self.items.pop(name, None)
        if item is not None:
            self.nbytes -= item.nbytes
        return item

    def touch(self, names: Iterable[str], used_ns: int) -> list[str]:
        """Those that are known, and older than that."""
        touched = [n for n in names if n in self.items and self.items[n].used_ns < used_ns]
        for name in touched:
            self.items[name].used_ns = used_ns
        return touched

    def by_use(self) -> list[str]:
        """The longest unused first; of equals the one that stands on the others, so that a prefix
        outlives what continues it."""
        return sorted(self.items, key=lambda n: (self.items[n].used_ns, -self.items[n].start))

    def older_than(self, used_ns: int) -> list[str]:
        return [name for name, item in self.items.items() if item.used_ns < used_ns]

    def follow(self, listing: Listing) -> list[str]:
        """Believes the folder: what is new there, used later there, or no longer there. Returns
        the last."""
        lost = [name for name in self.items if name not in listing.ours]
        for name in lost:
            self.remove(name)
        for name, item in listing.ours.items():
            known = self.items.get(name)
            if known is not None:
                item.used_ns = max(item.used_ns, known.used_ns)
            self.add(name, item)
        return lost


def listed(folder: Path, mark: str) -> Listing:
    """Raises OSError. `mark` is our identity's."""
    ours: dict[str, Item] = {}
    others = []
    with os.scandir(folder) as entries:
        for entry in entries:
            known = start_and_mark(entry.name)
            if known is None or known[1] != mark:
                others.append(entry.name)
            elif (item := _item(entry, known[0])) is not None:
                ours[entry.name] = item
    return Listing(ours, tuple(others))


def _item(entry: os.DirEntry[str], start: int) -> Item | None:
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        state = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Item(state.st_size, start, state.st_mtime_ns)
