"""The file of `--lang-bias-config`, as a value of `live.lang_bias`."""

from pathlib import Path
from typing import Any

import yaml

from mlxcel.core.errors import StartupError
from mlxcel.core.language import from_file, to_config


def read_bias_file(path: Path) -> dict[str, Any]:
    """Raises StartupError for a file that cannot be read or used."""
    try:
        text = path.read_text("utf-8")
        _refuse_twins(yaml.compose(text, yaml.SafeLoader))
        return to_config(from_file(yaml.safe_load(text)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise StartupError(f"generation.lang_bias.file: {path} cannot be used: {error}") from error


def _refuse_twins(node: yaml.Node | None) -> None:
    """YAML would keep the last of two equal keys and say nothing."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        if key.value in seen:
            raise ValueError(f"{key.value} is named twice")
        seen.add(key.value)
        _refuse_twins(value)
