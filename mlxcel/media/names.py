"""How a file may be named in a request. The name is not decoded: `%20` is three characters."""

import re

from mlxcel.media.rules import MediaRefused

MOST_BYTES = 255
FORBIDDEN = ':*?"<>|'
LOOK_ALIKES = "\uff0e\u2215\u2216\ufffd\ufeff"
"""Of a dot, a slash and a backslash; what stands for bytes that were no text; a byte order mark."""
ESCAPES = re.compile(r"%(2e|2f|5c|00)", re.IGNORECASE)


def check_name(name: str) -> None:
    """Raises MediaRefused with the rule that is broken."""
    for is_broken, rule in (
        (not name, "is empty"),
        (".." in name, "holds '..'"),
        (any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name), "has a control character"),
        (any(char in FORBIDDEN for char in name), f"holds one of {FORBIDDEN}"),
        (name != name.strip(" "), "begins or ends with a space"),
        (name.endswith("."), "ends with a dot"),
        (_bytes(name) > MOST_BYTES, f"is longer than {MOST_BYTES} bytes"),
        (any(char in LOOK_ALIKES for char in name), "holds a look-alike of a dot or slash"),
        (ESCAPES.search(name) is not None, "holds an escaped dot, slash, backslash or NUL"),
        (_has_surrogate(name), "is no Unicode text"),
    ):
        if is_broken:
            raise MediaRefused(f"the name of the media file {rule}")


def _bytes(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))


def _has_surrogate(name: str) -> bool:
    return any(0xD800 <= ord(char) <= 0xDFFF for char in name)
