"""Every name that a YAML file of `conf/` gives to code leads to that code.

The names are resolved in one process of their own: some import MLX, which must not happen here
before a worker's BLAS is loaded.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
RESOLVE = """
import importlib, json, sys
def failure(name):
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        return str(error)
    if not attribute or callable(getattr(found, attribute, None)):
        return ""
    return f"{module} has no {attribute} that can be called"
print(json.dumps({name: failure(name) for name in sys.argv[1:]}))
"""


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from mappings(item)


def said(key: str) -> list[str]:
    """Each text that stands under the key anywhere in `conf/`."""
    files = (yaml.safe_load(path.read_text("utf-8")) for path in CONF.rglob("*.yaml"))
    every = (mapping.get(key) for tree in files for mapping in mappings(tree))
    return sorted({text for text in every if isinstance(text, str)})


FACTORIES = said("factory")
CODECS = [f"mlxcel.protocols.{name}:read" for name in said("codec")]
DIALECTS = [f"mlxcel.protocols.{name}.errors:error_body" for name in said("dialect")]


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, *FACTORIES, *CODECS, *DIALECTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", [*FACTORIES, *CODECS, *DIALECTS])
def test_name_leads_to_something_that_can_be_called(name: str, failures: dict[str, str]) -> None:
    assert failures[name] == ""


@pytest.mark.parametrize("factory", FACTORIES)
def test_factory_is_ours(factory: str) -> None:
    assert factory.startswith("mlxcel.")


def test_handlers_and_rows_name_each_other() -> None:
    from mlxcel.http.handlers import find_handlers

    assert set(find_handlers()) == set(said("handler"))
