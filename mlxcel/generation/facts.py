"""What is fixed about the served model beside its names."""

import json
from pathlib import Path
from typing import Any

from mlxcel.core.ports import ModelFacts
from mlxcel.generation.chat_model import ChatModel
from mlxcel.text.abilities import abilities_of
from mlxcel.text.tools.choose import find_format

TYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""Of weights that are not quantised."""


def model_facts(model: ChatModel, path: Path | None) -> ModelFacts:
    """`path` is None for a model without a folder. Renders its template a dozen times."""
    template, text = model.template, model.text
    form = None
    if template is not None and template.knows_tools:
        form = find_format(template.source, text.vocabulary)
    return ModelFacts(
        path="" if path is None else str(path),
        chat_template="" if template is None else template.source,
        abilities=abilities_of(template),
        bos_token=text.special_tokens.get("bos_token", ""),
        eos_token=text.special_tokens.get("eos_token", ""),
        has_tool_parser=form is not None,
        weights_type="" if path is None else _weights_type(path),
    )


def _weights_type(folder: Path) -> str:
    """`MLX Q4`, `MLX BF16`; `MLX` where the checkpoint does not say."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return "MLX"
    kind = _kind(config) if isinstance(config, dict) else ""
    return f"MLX {kind}".rstrip()


def _kind(config: dict[str, Any]) -> str:
    inner = config.get("text_config")
    for section in (config, inner if isinstance(inner, dict) else {}):
        for name in ("quantization", "quantization_config"):
            if isinstance(found := section.get(name), dict) and isinstance(found.get("bits"), int):
                return f"Q{found['bits']}"
        for name in ("torch_dtype", "dtype"):
            if isinstance(found := section.get(name), str):
                return TYPES.get(found, found.upper())
    return ""
