"""Who may import whom (docs/architecture.md), read off the source: nothing is imported here
but in processes of their own."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mlxcel"
LINES = 400

# A module follows the row of its longest matching name; its own package is always allowed.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "link.messages": {"core"},
    "link": {"core"},
    "config": {"core"},
    "graph": {"core", "config", "link"},
    "graph.drafter": {"core", "config", "link", "store"},
    "graph.resolve": {"core", "config", "link", "store"},
    "graph.plan": {"core", "config", "link", "store"},
    "store": {"core"},
    "text": {"core"},
    "generation": {"core", "link", "text"},
    "protocols": {"core"},
    "metrics": {"core"},
    "storage": {"core"},
    "media": {"core"},
    "http": {"core", "protocols", "generation", "media", "metrics", "storage"},
    "worker": {"core", "link.messages"},
    "weights": {"core", "worker"},
    "engine": {"core", "link.messages", "worker", "weights"},
    "connect": {"core"},
    "cli": {"core", "config", "graph", "store", "connect"},
    "__main__": {"cli"},
    "__init__": set(),
}
# Packages of others that would break a promise: no MLX in the front, no HTTP in a worker,
# nothing but the standard library and msgspec in the words everybody shares.
ONLY: dict[str, set[str]] = {
    "core": {"msgspec"},
    "protocols": set(),
    "metrics": {"prometheus_client"},
    "storage": {"orjson"},
    "engine": {"blake3", "llguidance", "mlx", "mlx_lm", "msgspec", "numpy", "re2"},
}
MAY_IMPORT_MLX = {"worker", "weights", "engine"}
MLX = {"mlx", "mlx_lm", "transformers"}

SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """Below the package: `graph.resolve`; of an `__init__` the package it makes."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1]) if parts[-1] == "__init__" and parts[:-1] else ".".join(parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, at the top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def row(module: str) -> set[str]:
    names = [name for name in MAY_IMPORT if within(module, name)]
    assert names, f"mlxcel.{module} is in no row of the layer table"
    return MAY_IMPORT[max(names, key=len)]


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def crossings(path: Path) -> Iterator[str]:
    module = module_name(path)
    for line, name in imports(path):
        if not (is_ours_and_allowed(module, name) or is_foreign_and_allowed(module, name)):
            yield f"{path.relative_to(ROOT)}:{line}: mlxcel.{module} imports {name}"


def is_ours_and_allowed(module: str, name: str) -> bool:
    top, _, inner = name.partition(".")
    if top != "mlxcel":
        return False
    # What both sides of the process border read may not lean on one side's package.
    own = set() if module == "link.messages" else {module.split(".")[0]}
    return inner == "__version__" or any(within(inner, one) for one in row(module) | own)


def is_foreign_and_allowed(module: str, name: str) -> bool:
    top, own = name.partition(".")[0], module.split(".")[0]
    if top == "mlxcel" or (top in MLX and own not in MAY_IMPORT_MLX):
        return False
    return own not in ONLY or top in ONLY[own] | sys.stdlib_module_names


def test_imports_follow_the_layer_table() -> None:
    found = [crossing for path in SOURCES for crossing in crossings(path)]
    assert not found, "\n" + "\n".join(found)


def test_no_file_is_too_long() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in SOURCES}
    assert not {path: count for path, count in lengths.items() if count > LINES}


def loaded_by(code: str) -> set[str]:
    """The top-level packages a fresh interpreter holds after running the code."""
    last = "\nimport sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code + last],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_front_loads_no_mlx() -> None:
    front = [
        f"mlxcel.{module_name(path)}"
        for path in SOURCES
        if module_name(path).split(".")[0] not in {*MAY_IMPORT_MLX, "__main__", "__init__"}
    ]
    assert "mlxcel.graph.runtime" in front
    loaded = loaded_by("\n".join(f"import {name}" for name in front))
    assert "sanic" in loaded
    assert not loaded & MLX


@pytest.mark.parametrize(
    "heavy", ["hydra", "omegaconf", "jsonschema", "sanic", "zmq", "tokenizers", "huggingface_hub"]
)
def test_help_loads_nothing_heavy(heavy: str, help_modules: set[str]) -> None:
    assert heavy not in help_modules


@pytest.fixture(scope="module")
def help_modules() -> set[str]:
    loaded = loaded_by("from mlxcel.cli.main import main; assert main(['--help']) == 0")
    assert "yaml" in loaded
    return loaded
