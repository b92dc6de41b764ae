"""What was found of a pairing is known at the next start: `<cache dir>/mtp-policy/<hash>.json`.

A file that cannot be read is as good as none, one that cannot be written is missed at the next
start: either way with a line in the log.
"""

import json
import logging
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import msgspec

from mlxcel.core.status import MtpVerdict
from mlxcel.engine.draft.mtp.policy import Pairing

log = logging.getLogger(__name__)

FOLDER = "mtp-policy"
VERSION = 3
"""Of the file and of how its verdict is found. Raise it when one of them changes."""


class Versioned(msgspec.Struct, frozen=True):
    version: int


class Kept(Versioned, frozen=True, kw_only=True):
    """The file. The pairing is in it for whoever looks, and against one that was moved."""

    target: str
    drafter: str
    hardware: str
    block_size: int
    verdict: MtpVerdict
    speed_up: float
    """For whoever looks."""


class PolicyMemory:
    def __init__(self, cache_dir: Path | None, pairing: Pairing) -> None:
        """`cache_dir` None: nothing is kept."""
        self._pairing = pairing
        self.path = None if cache_dir is None else cache_dir / FOLDER / f"{_hash(pairing)}.json"

    def read(self) -> MtpVerdict | None:
        """None: not known."""
        if self.path is None:
            return None
        try:
            return _kept(self.path.read_bytes(), self._pairing).verdict
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as why:
            log.warning("the verdict on mtp in %s is not used: %s", self.path, why)
            return None

    def keep(self, verdict: MtpVerdict, speed_up: float) -> None:
        """In one step, so that two servers that find it together do no harm."""
        if self.path is None:
            return
        kept = Kept(
            version=VERSION, **asdict(self._pairing), verdict=verdict, speed_up=round(speed_up, 3)
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self.path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
        except OSError as why:
            log.warning("the verdict on mtp cannot be kept in %s: %s", self.path, why)


def _kept(data: bytes, pairing: Pairing) -> Kept:
    """Raises ValueError or MsgspecError for what is not the file of this pairing."""
    if (version := msgspec.json.decode(data, type=Versioned).version) != VERSION:
        raise ValueError(f"it is of version {version}, not {VERSION}")
    kept = msgspec.json.decode(data, type=Kept)
    if {name: getattr(kept, name) for name in asdict(pairing)} != asdict(pairing):
        raise ValueError(f"it is of {kept.target} with {kept.drafter} on {kept.hardware}")
    return kept


def _hash(pairing: Pairing) -> str:
    return sha256(json.dumps(asdict(pairing), sort_keys=True).encode()).hexdigest()


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        with suppress(OSError):
            os.unlink(name)
        raise
