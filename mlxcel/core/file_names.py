"""Names of files that clients choose (auth and media contract, 6)."""

import re
import unicodedata

LONGEST_BYTES = 255
REFUSED = frozenset(':*?"<>|/\\\uff0e\u2215\u2216\ufffd\ufeff')
"""Separators, what some systems do not allow, and look-alikes of a dot and of separators."""
ESCAPED = re.compile("%(2e|2f|5c|00)", re.IGNORECASE)
"""Dots, separators and zeros for whoever decodes a name once more."""


def is_plain_name(name: str) -> bool:
    """Whether it names a file of a folder: nothing above it, nothing in a folder below."""
    if not name or name != name.strip(" ") or name.endswith(".") or ".." in name:
        return False
    if len(name.encode("utf-8", "surrogatepass")) > LONGEST_BYTES:
        return False
    return ESCAPED.search(name) is None and all(map(_is_harmless, name))


def _is_harmless(character: str) -> bool:
    """Neither a control character nor half of one that was cut."""
    return character not in REFUSED and unicodedata.category(character) not in ("Cc", "Cs")
