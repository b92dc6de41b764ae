"""Is every file below schemas/ a JSON Schema, and does every `$ref` in it lead somewhere?"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import SchemaError
from jsonschema.validators import validator_for

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"


def problems(path: Path) -> Iterator[str]:
    schema = json.loads(path.read_text("utf-8"))
    if "$schema" not in schema:
        yield "has no $schema"
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        yield f"{error.json_path}: {error.message}"
    for reference in references(schema):
        if not leads_somewhere(path, reference):
            yield f"$ref {reference} leads nowhere"


def references(value: Any) -> Iterator[str]:
    match value:
        case {"$ref": str(reference)}:
            yield reference
        case dict():
            for item in value.values():
                yield from references(item)
        case list():
            for item in value:
                yield from references(item)


def leads_somewhere(path: Path, reference: str) -> bool:
    name, _, pointer = reference.partition("#")
    target = path.with_name(name) if name else path
    if not target.is_file():
        return False
    at = json.loads(target.read_text("utf-8"))
    for step in pointer.split("/")[1:]:
        if step not in at:
            return False
        at = at[step]
    return True


def main() -> int:
    files = sorted(SCHEMAS.rglob("*.json"))
    found = [f"{path.relative_to(SCHEMAS)}: {p}" for path in files for p in problems(path)]
    print("\n".join(found) or f"{len(files)} schemas are fine")
    return bool(found) or not files


if __name__ == "__main__":
    sys.exit(main())
