"""Text that a client keeps for us and need not understand: thoughts, and summaries of turns.

No secret: it is the client's own conversation. It is readable after a restart and on another
server of ours, which a key of one process would not allow.
"""

import base64
import binascii

PREFIX = "b64:"


def sealed(text: str) -> str:
    return PREFIX + base64.b64encode(text.encode()).decode()


def opened(content: str) -> str | None:
    """None: it was not sealed here."""
    if not content.startswith(PREFIX):
        return None
    try:
        return base64.b64decode(content[len(PREFIX) :], validate=True).decode()
    except (binascii.Error, ValueError):
        return None
