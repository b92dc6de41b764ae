"""What the answer must look like, on the native routes: a GBNF grammar or a JSON Schema, from its
first token on or, when lazy, from a trigger on.

Whether grammars, schemas and expressions can be had, and are not too many, is found out later.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlxcel.core.output import OutputFormat, OutputKind, Trigger, TriggerKind
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.numbers import INT32_MAX

GRAMMAR = "grammar"
SCHEMA = "json_schema"
TRIGGERS = "grammar_triggers"
PRESERVED = "preserved_tokens"
MOST_PRESERVED = 1024

KINDS = (TriggerKind.TOKEN, TriggerKind.WORD, TriggerKind.PATTERN, TriggerKind.PATTERN_FULL)
"""By the numbers they have on the wire."""


def read_output(fields: Reader, default: OutputFormat | None) -> OutputFormat | None:
    """None: free text. An empty grammar asks for just that, whatever stands beside it and whatever
    the server says."""
    found = _asked(fields, default)
    triggers = _triggers(fields)
    if not fields.boolean("grammar_lazy"):
        return found
    if not triggers:
        raise fields.refuse(TRIGGERS, "is required, and not empty, with grammar_lazy: true")
    return None if found is None else replace(found, triggers=triggers)


def read_preserved(fields: Reader) -> tuple[str, ...]:
    sent = fields.items(PRESERVED) or ()
    if len(sent) > MOST_PRESERVED:
        raise fields.refuse(PRESERVED, f"wants at most {MOST_PRESERVED}, got {len(sent)}")
    for word in sent:
        if not isinstance(word, str):
            raise fields.refuse(PRESERVED, f"wants strings, got {shown(word)}")
    return tuple(sent)


def _asked(fields: Reader, default: OutputFormat | None) -> OutputFormat | None:
    source = fields.body.get(GRAMMAR)
    if isinstance(source, str):
        return OutputFormat(kind=OutputKind.GBNF, source=source, param=GRAMMAR) if source else None
    schema = fields.mapping(SCHEMA)
    if schema is None:
        return default
    return OutputFormat(kind=OutputKind.JSON_SCHEMA, source=_json(fields, schema), param=SCHEMA)


def _json(fields: Reader, schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise fields.refuse(SCHEMA, "is nested far too deep to be read") from None


def _triggers(fields: Reader) -> tuple[Trigger, ...]:
    sent = fields.items(TRIGGERS) or ()
    return tuple(_trigger(fields, place, entry) for place, entry in enumerate(sent))


def _trigger(fields: Reader, place: int, entry: object) -> Trigger:
    if not isinstance(entry, dict):
        rule = f"wants objects with type and value, got {shown(entry)}"
        raise fields.refuse(f"{TRIGGERS}.{place}", rule)
    inner = Reader(entry, fields.name(f"{TRIGGERS}.{place}"))
    number = inner.integer("type")
    if number is None or not 0 <= number < len(KINDS):
        rule = (
            "wants 0 (token), 1 (word), 2 (pattern) or 3 (pattern that the whole answer matches), "
            f"got {shown(entry.get('type'))}"
        )
        raise inner.refuse("type", rule)
    kind, value = KINDS[number], inner.string("value") or ""
    token = inner.integer("token", minimum=0, maximum=INT32_MAX)
    if kind is TriggerKind.TOKEN and token is None:
        raise inner.refuse("token", "is required for a trigger of type 0: the id of its token")
    if kind is not TriggerKind.TOKEN and not value:
        raise inner.refuse("value", f"is required for a trigger of type {number}")
    return Trigger(kind=kind, value=value, token=token)
