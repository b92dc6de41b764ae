"""Media that stand in the request itself: `data:image/png;base64,...`."""

import base64
import binascii
import re

from mlxcel.media.rules import MediaRefused, too_large

SCHEME = "data:"
_HEAD = re.compile(r"data:(image|audio|video)/[A-Za-z0-9][A-Za-z0-9.+-]{0,126};base64,")


def decode(uri: str, kind: str, limit_bytes: int) -> bytes:
    """The bytes; the size is judged before they are decoded. Raises MediaRefused."""
    head = _HEAD.match(uri)
    if head is None or head[1] != kind:
        raise MediaRefused(f"the data: URI is not data:{kind}/TYPE;base64,DATA")
    if _decoded_bytes(uri, head.end()) > limit_bytes:
        raise too_large(f"the {kind}", limit_bytes)
    try:
        return base64.b64decode(uri[head.end() :].encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise MediaRefused(f"the data: URI of the {kind} is not valid base64") from error


def _decoded_bytes(uri: str, start: int) -> int:
    padding = uri.endswith("=", start) + uri.endswith("==", start)
    return (len(uri) - start) * 3 // 4 - padding
