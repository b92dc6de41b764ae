"""Logging of the front: one handler, one format; workers use the same with their name."""

import logging
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxcel.core.errors import StartupError

FORMAT = "%(asctime)s %(levelname)-7s front: %(message)s"


def set_up_logging(options: Mapping[str, Any]) -> None:
    """`options` is the section `observability.log`. Raises StartupError for a bad file."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if options["file"] is not None:
        handler = logging.StreamHandler(_open(Path(options["file"])))
    handler.setFormatter(logging.Formatter(FORMAT))
    # What is critical, that the server itself is broken, is logged all the same. Workers take
    # over the level.
    level, others = options["level"].upper(), "WARNING"
    if not options["enabled"]:
        level = others = "CRITICAL"
    logging.basicConfig(level=others, handlers=[handler], force=True)
    logging.getLogger("mlxcel").setLevel(level)


def _open(path: Path) -> Any:
    """Append to a private regular file; never through a link (contract cli-env, 15)."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as why:
        raise StartupError(f"observability.log.file {path} cannot be opened: {why}") from why
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StartupError(f"observability.log.file {path} is not a regular file")
    return os.fdopen(descriptor, "a", encoding="utf-8")
