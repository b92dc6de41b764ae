"""The folders that media may be read from, looked at when the server starts."""

import stat
from collections.abc import Iterator

from mlxcel.core.errors import StartupError
from mlxcel.media.rules import MediaRules

OTHERS = stat.S_IWGRP | stat.S_IWOTH


def check_folders(rules: MediaRules) -> Iterator[str]:
    """Warnings: whoever may write to a folder of videos decides what is read from it. Raises
    StartupError for a media path that is no folder."""
    if rules.root is not None and not rules.root.is_dir():
        raise StartupError(f"--media-path (limits.media_path) {rules.root} is no folder")
    for folder in rules.video_folders:
        if not folder.is_dir():
            yield f"{folder} of MLXCEL_VIDEO_DIR_ALLOWLIST is no folder"
        elif folder.stat().st_mode & OTHERS:
            yield f"{folder} of MLXCEL_VIDEO_DIR_ALLOWLIST may be written to by its group or by all"
