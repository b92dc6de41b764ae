"""Where the files are that come with the program."""

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent.parent

Kind = Literal["conf", "recipes", "schemas"]


def data_dir(kind: Kind) -> Path:
    """Our folder of that kind: inside the package when installed, else the checkout's."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind
