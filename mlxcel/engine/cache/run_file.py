"""A run of tokens in a file of its own, outside of the disk tier: the tier's format, any name."""

import time
from dataclasses import dataclass
from pathlib import Path

from mlxcel.engine.cache.disk import files
from mlxcel.engine.cache.disk.arrays import Loaded, arrived, outgoing, sheets_of
from mlxcel.engine.cache.disk.head import NotOurs, NotSound, head_of, run_of
from mlxcel.engine.cache.disk.run import Identity, Run
from mlxcel.engine.cache.segment import Layers, Segment


class RunUnreadable(Exception):
    """No file, not ours, or not as it was written; says which."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRun:
    """What a file holds, not yet MLX's."""

    identity: Identity
    run: Run
    loaded: Loaded

    def segment(self) -> Segment:
        """On the tick."""
        return arrived(self.loaded)


def drafted(path: Path, run: Run, layers: Layers, identity: Identity) -> files.Draft:
    """What `write_run` writes. On the tick: waits for the arrays, which hold the run's tokens."""
    return files.Draft(
        name=path.name,
        run=run,
        head=head_of(identity, run, sheets_of(layers)),
        layers=outgoing(layers),
        used_ns=time.time_ns(),
    )


def write_run(path: Path, draft: files.Draft) -> int:
    """Bytes of the file, which is there whole or not at all. Any thread. Raises OSError."""
    return files.write(path.parent, draft, files.never)


def read_run(path: Path) -> ReadRun:
    """Any thread. Raises RunUnreadable."""
    try:
        head, ids, loaded = files.read(path)
    except (NotOurs, NotSound) as why:
        raise RunUnreadable(str(why)) from why
    except OSError as error:
        raise RunUnreadable(error.strerror or str(error)) from error
    return ReadRun(identity=head.identity, run=run_of(head, ids), loaded=loaded)
