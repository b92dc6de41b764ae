"""Every recipe and every option of every group composes and is valid, by glob."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from mlxcel.config.asked import Asked
from mlxcel.config.compose import compose
from mlxcel.config.layers import groups, options, search_path
from mlxcel.config.paths import data_dir
from mlxcel.config.problems import render_problems
from mlxcel.config.schema import Schema, every_key
from mlxcel.config.validate import validate

CHOICES = [f"{group}={option}" for group in groups() for option in options(group, search_path(()))]
FILES = sorted([*data_dir("conf").rglob("*.yaml"), *data_dir("recipes").glob("*.yaml")])
SCHEMAS = sorted(data_dir("schemas").glob("*.json"))


def test_the_glob_finds_what_is_there() -> None:
    assert {"recipes=laptop", "recipes=ci", "model=smollm2", "model=echo"} <= set(CHOICES)


NEEDED = {
    "draft=full_model": ("draft.path=a-folder",),
    "draft=dflash": ("draft.path=a-folder",),
}
"""What an option wants that nobody can know for its user."""


@pytest.mark.parametrize("choice", CHOICES)
def test_choice_composes_and_is_valid(choice: str) -> None:
    composed = compose(Asked(overrides=(choice, *NEEDED.get(choice, ()))))
    group, _, option = choice.partition("=")
    problems = validate(composed)
    assert problems == [], render_problems(problems)
    assert composed.choices[group] == option


@pytest.mark.parametrize("file", sorted(data_dir("recipes").glob("*.yaml")), ids=lambda f: f.stem)
def test_recipe_begins_with_its_header(file: Any) -> None:
    assert file.read_text().startswith("# @package _global_\n# ")


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_file_opens_with_a_sentence_and_says_no_yaml_word(file: Any) -> None:
    text = file.read_text()
    assert text.startswith("# ")
    scalars = [event for event in yaml.parse(text) if isinstance(event, yaml.ScalarEvent)]
    words = {event.value for event in scalars if event.style is None}
    assert not words & {"on", "off", "yes", "no"}


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda f: f.stem)
def test_schema_is_one_and_holds_no_default(file: Any) -> None:
    schema = json.loads(file.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert not [part for part in parts(schema) if "default" in part]


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda f: f.stem)
def test_every_key_of_a_schema_is_described(file: Any) -> None:
    for part in parts(json.loads(file.read_text())):
        for name, rule in part.get("properties", {}).items():
            assert "description" in rule or "$ref" in rule, name


def test_every_group_has_its_section_and_schema() -> None:
    sections = {key for key in every_key() if "." not in key}
    assert sections == set(groups()) - {"recipes"}


def parts(schema: Schema) -> Iterator[Schema]:
    """A schema and all schemas in it; names of properties are no schemas."""
    yield schema
    below = [*schema.get("properties", {}).values(), *schema.get("oneOf", [])]
    below += [schema[word] for word in ("items", "additionalProperties") if word in schema]
    for part in below:
        if isinstance(part, dict):
            yield from parts(part)
