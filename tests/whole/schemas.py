"""Answers held to the JSON Schema they were asked for."""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema

CLOSERS = {str(ord(char)): 4.0 for char in '"]}'}
"""A `logit_bias`. Without it most of what a random model writes is one endless string."""


def json_schema(schema: object, **more: Any) -> dict[str, Any]:
    """The value of `response_format`."""
    return {"type": "json_schema", "json_schema": {"name": "k", "schema": schema, **more}}


def forced(text: object) -> dict[str, Any]:
    """FORCE(t) of the fault cases: a `response_format` that one answer alone satisfies."""
    return json_schema(
        {
            "type": "object",
            "properties": {"t": {"const": text}},
            "required": ["t"],
            "additionalProperties": False,
        }
    )


def assert_valid(schema: Mapping[str, Any], text: str) -> Any:
    """The parsed text. Fails the test for what is no JSON or breaks the schema, formats
    included."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    value = json.loads(text)
    kind(schema, format_checker=kind.FORMAT_CHECKER).validate(value)
    return value
