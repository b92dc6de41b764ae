"""The billing stamp that Claude Code writes at the head of its system prompt.

Parts of it change with every request, and a prompt whose first words change is never found in a
prompt cache: they are pinned (contract http-anthropic, 7).
"""

import re

HEAD = "x-anthropic-billing-header"
_PAIR = re.compile(r"(?<=[;:\s])(cch|cc_version)=([^;\s]*)")
_CHANGING_PART = 3
"""Of a version, counted from 0: the others are those of the program."""


def pin_stamp(text: str) -> str:
    """A text as long as before; all but the first line, and texts without a stamp, are kept."""
    if not text.startswith(HEAD):
        return text
    stamp, newline, rest = text.partition("\n")
    return _PAIR.sub(_pinned, stamp) + newline + rest


def _pinned(pair: re.Match[str]) -> str:
    name, value = pair.groups()
    if name == "cch":
        return f"cch={_blank(value)}"
    parts = value.split(".")
    if len(parts) > _CHANGING_PART:
        parts[_CHANGING_PART] = _blank(parts[_CHANGING_PART])
    return f"cc_version={'.'.join(parts)}"


def _blank(value: str) -> str:
    return "f" * len(value)
