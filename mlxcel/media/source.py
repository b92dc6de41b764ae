"""Media as a request names them, in whichever of the three forms: as bytes."""

import asyncio
from typing import Literal

from mlxcel.media import data_uri, files
from mlxcel.media.fetch import Fetcher
from mlxcel.media.rules import MediaRules

Kind = Literal["image", "audio"]


async def read_media(source: str, kind: Kind, rules: MediaRules, fetcher: Fetcher) -> bytes:
    """From a data: URI, a URL, or a file below the media path. Raises MediaRefused."""
    limit = rules.limit_bytes(kind)
    if source.startswith(data_uri.SCHEME):
        return await asyncio.to_thread(data_uri.decode, source, kind, limit)
    if "://" in source and not source.startswith(files.SCHEME):
        return await fetcher.get(source, limit)
    return await asyncio.to_thread(files.read_file, rules.root, source, limit)
