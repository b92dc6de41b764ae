"""What media of a request may be: made once from the section `limits`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.core.errors import BadRequest


class MediaRefused(BadRequest):
    """The whole request is refused: no part of it is dropped in silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRules:
    root: Path | None
    """The folder of files; None: no files."""
    video_folders: tuple[Path, ...]
    allow_private: bool
    """URLs may lead to addresses that are not public."""
    is_offline: bool
    """No URL is fetched."""
    max_images: int
    """Of one request."""
    image_bytes: int
    audio_bytes: int = 524_288_000
    video_bytes: int = 1 << 30

    def limit_bytes(self, kind: str) -> int:
        """Of one `image`, `audio` or `video`."""
        limits = {"image": self.image_bytes, "audio": self.audio_bytes, "video": self.video_bytes}
        return limits[kind]

    def check_count(self, images: int) -> None:
        """Raises MediaRefused for more images than a request may bring."""
        if images > self.max_images:
            raise MediaRefused(f"{images} images are more than {self.max_images} (--max-images)")


def read_rules(limits: Mapping[str, Any], *, is_offline: bool) -> MediaRules:
    root = limits["media_path"]
    return MediaRules(
        root=None if root is None else Path(root).expanduser(),
        video_folders=tuple(Path(f).expanduser() for f in limits["video"]["dir_allowlist"]),
        allow_private=limits["allow_private_media_urls"],
        is_offline=is_offline,
        max_images=limits["image"]["max_images"],
        image_bytes=limits["image"]["payload_bytes"],
    )


def too_large(what: str, limit_bytes: int) -> MediaRefused:
    return MediaRefused(f"{what} is larger than {limit_bytes} bytes")
