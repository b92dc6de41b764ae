"""One reason why a configuration cannot run, as data: start-up collects all of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`source` is file:line, `command line: --port` or `environment: NAME`, where it is known."""

    key: str
    value: object
    rule: str
    """What the value breaks: `is greater than the maximum of 65535`."""
    hint: str = ""
    """What would work: `did you mean server.port?`."""
    source: str = ""
