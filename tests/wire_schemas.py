"""What `schemas/wire/` says, as a judge of bodies that are really sent and really come."""

from collections.abc import Callable
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from mlxcel.http import wire
from mlxcel.http.openapi import bounded


def sealed(schema: Any) -> Any:
    """Nothing but what is named: for clients schemas are open, so that fields can be added."""
    match schema:
        case dict():
            inner = {word: sealed(said) for word, said in schema.items()}
            is_object = schema.get("type") == "object" and "properties" in schema
            return {"additionalProperties": False} | inner if is_object else inner
        case list():
            return [sealed(item) for item in schema]
    return schema


def judge(name: str, make: Callable[[str], Any]) -> Validator:
    """With all files that it refers to read beforehand: a registry forgets what it retrieves."""
    made = {name: make(name)}
    while more := {wire.file_of(ref) for one in made.values() for ref in wire.referred(one)} - {
        *made
    }:
        made |= {file: make(file) for file in more}
    registry: Registry[Any] = Registry().with_resources(
        (f"{file}{wire.SUFFIX}", DRAFT202012.create_resource(schema))
        for file, schema in made.items()
    )
    return Draft202012Validator(made[name], registry=registry.crawl())


@cache
def told(name: str) -> Validator:
    """Of an answer: with all that is required, and nothing that is not named."""
    return judge(name, lambda file: sealed(wire.read(file)))


@cache
def asked(name: str) -> Validator:
    """Of a request, as its parser hands it on."""
    return judge(name, lambda file: bounded(wire.fields_of(file)))


def faults(validator: Validator, body: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}"[:300] for error in validator.iter_errors(body)]
