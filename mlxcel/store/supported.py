"""Which model types the installed mlx-lm can build, read from its files: importing it takes
seconds and MLX, and this side has neither."""

import ast
import difflib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def architecture(config: Mapping[str, Any]) -> str | None:
    """The mlx-lm model file that builds this config; None where there is none."""
    name = str(config.get("model_type", ""))
    by_name, by_architecture = _renames()
    named = config.get("architectures") or ()
    for item in (named,) if isinstance(named, str) else named:
        if (name, item) in by_architecture:
            name = by_architecture[name, item]
            break
    else:
        name = by_name.get(name, name)
    return name if name in _model_files() else None


def nearest(model_type: str, count: int = 3) -> list[str]:
    """The supported names that look most like `model_type`."""
    known = sorted({*_model_files(), *_renames()[0]})
    return difflib.get_close_matches(model_type, known, n=count, cutoff=0.4)


@cache
def _model_files() -> frozenset[str]:
    """Names of the files in `mlx_lm/models` that hold a model; the others are its tools."""
    files = (_package() / "models").glob("*.py")
    return frozenset(f.stem for f in files if _is_model(f.read_text(encoding="utf-8")))


def _is_model(source: str) -> bool:
    return "ModelArgs" in source and "class BaseModelArgs" not in source


@cache
def _renames() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """MODEL_REMAPPING and MODEL_ARCHITECTURE_REMAPPING of mlx_lm.utils, which are literals."""
    tree = ast.parse((_package() / "utils.py").read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("MODEL_REMAPPING", "MODEL_ARCHITECTURE_REMAPPING"):
                found[name] = ast.literal_eval(node.value)
    return found.get("MODEL_REMAPPING", {}), found.get("MODEL_ARCHITECTURE_REMAPPING", {})


def _package() -> Path:
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("mlx-lm is not installed; pip install mlxcel brings it")
    return Path(spec.origin).parent
