"""mlx-lm's parsers of tool calls, loaded by file.

`import mlx_lm` loads MLX, which the front never does. The parsers lean on nothing but `regex`, so
their folder becomes a package of its own here, in which their imports of each other resolve.
"""

import importlib
import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "_mlx_lm_tool_parsers"


@lru_cache
def parser(name: str) -> ModuleType:
    """The module `mlx_lm.tool_parsers.<name>`."""
    if PACKAGE not in sys.modules:
        _load_package(_folder())
    return importlib.import_module(f"{PACKAGE}.{name}")


def library_parse(name: str, text: str, tools: list[dict[str, Any]]) -> Any:
    """What the parser made of one call or several: a dict, a list of them, or whatever JSON
    says. Raises ValueError for broken markup."""
    try:
        return parser(name).parse_tool_call(text, tools)
    except Exception as error:
        # The border to code that meets what models write with IndexError, AttributeError and
        # RecursionError as well: all of them say that the text is no call.
        raise ValueError(f"no {name} call: {type(error).__name__}: {error}") from error


def _folder() -> Path:
    # Finds mlx_lm without importing it.
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("mlx_lm is not installed; tool calls are read by its parsers")
    return Path(spec.submodule_search_locations[0]) / "tool_parsers"


def _load_package(folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
