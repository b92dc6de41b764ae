"""Where configuration text is found: ours, and the user's own folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlxcel.core.shipped import data_dir

__all__ = ["data_dir", "missing_dirs", "user_dirs"]


def user_dirs(extra: Sequence[Path], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The user's folders that exist, the one that wins first."""
    folders = _named(extra, environ)
    if config := environ.get("XDG_CONFIG_HOME", ""):
        folders.append(Path(config) / "mlxcel")
    elif home := environ.get("HOME", ""):
        folders.append(Path(home) / ".config" / "mlxcel")
    return tuple(folder for folder in dict.fromkeys(folders) if folder.is_dir())


def missing_dirs(extra: Sequence[Path], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Folders somebody named that are not there; the default folder may be absent."""
    return tuple(folder for folder in _named(extra, environ) if not folder.is_dir())


def _named(extra: Sequence[Path], environ: Mapping[str, str]) -> list[Path]:
    folders = list(extra)
    if variable := environ.get("MLXCEL_CONFIG_DIR", ""):
        folders.append(Path(variable))
    return [_expanded(folder, environ.get("HOME", "")) for folder in folders]


def _expanded(folder: Path, home: str) -> Path:
    parts = folder.parts
    if home and parts and parts[0] == "~":
        folder = Path(home, *parts[1:])
    return folder.absolute()
