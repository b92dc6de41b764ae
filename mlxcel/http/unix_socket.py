"""A Unix socket as a listener: its file is ours alone, and is gone when the server is.

Whoever may open the file may call; so only this user may (mode 0600).
"""

import contextlib
import errno
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mlxcel.core.errors import StartupError

MODE = 0o600
PROBE_S = 1.0


def bind_unix(path: str) -> socket.socket:
    """A bound socket that does not listen yet. A file that a dead server left is replaced.

    Raises StartupError for a path that is taken or cannot be used.
    """
    file = Path(path).expanduser()
    _clear(file)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # As it was spelled: what Sanic logs needs a name of two characters, and "./a" has them.
        sock.bind(os.path.expanduser(path))
        # Nobody can have connected: the socket listens later.
        file.chmod(MODE)
    except OSError as error:
        sock.close()
        why = error.strerror or error  # a path that is too long has no errno
        raise StartupError(f"cannot listen on unix:{file}: {why} (server.host)") from error
    sock.setblocking(False)
    return sock


@dataclass(frozen=True, slots=True)
class SocketFile:
    """The file that a bound socket has made."""

    path: Path
    inode: tuple[int, int]

    @classmethod
    def of(cls, sock: socket.socket) -> Self | None:
        """None for a socket of another kind."""
        if sock.family != socket.AF_UNIX:
            return None
        path = Path(sock.getsockname())
        return cls(path, _inode(path))

    def remove(self) -> None:
        """Unless another server has put its own there."""
        with contextlib.suppress(OSError):
            if _inode(self.path) == self.inode:
                self.path.unlink()


def _inode(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _clear(file: Path) -> None:
    try:
        mode = file.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartupError(f"{file} exists and is no socket; remove it, or change server.host")
    if _is_served(file):
        raise StartupError(
            f"unix:{file} is in use by another process; stop it, or change server.host"
        )
    file.unlink(missing_ok=True)


def _is_served(file: Path) -> bool:
    """Whether somebody listens; a socket that may not be asked counts as one that does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            code = probe.connect_ex(os.fspath(file))
        except TimeoutError:
            return True
    return code not in (errno.ECONNREFUSED, errno.ENOENT)
