"""What an answer must look like, free of any dialect."""

from dataclasses import dataclass
from enum import StrEnum


class OutputKind(StrEnum):
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GBNF = "gbnf"
    LARK = "lark"


class TriggerKind(StrEnum):
    """What wakes a lazy grammar."""

    TOKEN = "token"
    WORD = "word"
    PATTERN = "pattern"
    """A regular expression found somewhere in the answer so far."""
    PATTERN_FULL = "pattern_full"
    """One that the whole answer so far matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    kind: TriggerKind
    value: str = ""
    token: int | None = None
    """Of a TOKEN; of a WORD where the client named its token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """What the answer must look like, as the client said it. `source` is the schema as JSON
    text, the expression or the grammar; "" for a JSON object. `param` is the field to blame."""

    kind: OutputKind
    source: str = ""
    param: str = "response_format"
    triggers: tuple[Trigger, ...] = ()
    """It binds from the first of these on, which belongs to it; empty: from the start."""
