"""Text of an argument as the value its schema asks for."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

Schema = Mapping[str, Any]


def typed(text: str, schema: Schema, root: Schema) -> Any:
    """The value, or the text itself where the schema wants a string or the text does not fit.

    `root` is what `$ref`s of the schema start from. A text that fits several types becomes the
    most specific one; `enum` and `const` allow the types of their values.
    """
    types = _types(schema, root)
    try:
        value = json.loads(_as_json(text, types), parse_constant=_refuse, strict=False)
    except (ValueError, RecursionError):
        return text
    kind = _kind(value)
    if kind == "number" and "number" not in types:
        # 5.0 is an integer to JSON Schema.
        return int(value) if "integer" in types and value.is_integer() else text
    if kind == "number":
        return value if math.isfinite(value) else text
    fits = kind in types or (kind == "integer" and "number" in types)
    return value if fits else text


def _as_json(text: str, types: set[str]) -> str:
    """Models write the words of Python as well."""
    word = text.strip().lower()
    if "boolean" in types and word in ("true", "false"):
        return word
    return "null" if "null" in types and word in ("null", "none") else text.strip()


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            # Quotes around a string are part of it.
            return "quoted"
        case list():
            return "array"
        case _:
            return "object"


def _types(schema: Schema, root: Schema) -> set[str]:
    """Every type one of the alternatives has; each schema is looked at once."""
    types: set[str] = set()
    waiting: list[Any] = [schema]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping) and id(one) not in seen:
            seen.add(id(one))
            types.update(_own_types(one))
            waiting += _alternatives(one, root)
    return types


def _own_types(schema: Schema) -> Iterator[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        yield declared
    elif isinstance(declared, list):
        yield from (one for one in declared if isinstance(one, str))
    else:
        yield from _types_of_values(schema)


def _alternatives(schema: Schema, root: Schema) -> Iterator[Any]:
    for word in ("anyOf", "oneOf", "allOf"):
        yield from _listed(schema.get(word))
    if isinstance(reference := schema.get("$ref"), str):
        yield _resolve(reference, root)


def _types_of_values(schema: Schema) -> Iterator[str]:
    values = _listed(schema.get("enum")) + ([schema["const"]] if "const" in schema else [])
    yield from ("string" if isinstance(value, str) else _kind(value) for value in values)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _resolve(reference: str, root: Schema) -> Any:
    """What a pointer into the tool's own schema names; None for any other reference."""
    if not reference.startswith("#"):
        return None
    place: Any = root
    for step in filter(None, reference[1:].split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
