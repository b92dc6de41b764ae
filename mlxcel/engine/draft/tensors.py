"""The tensors of a head: where they lie, and how they get into its network."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.utils import dequantize_model, infer_quant_config

from mlxcel.core.errors import StartupError

Tensors = dict[str, mx.array]
INDEX = "model.safetensors.index.json"
EXACT = "e_score_correction_bias"
"""Experts are told apart by small differences of it: it stays as it is stored."""
ROUTERS = ("mlp.gate", "shared_expert_gate")


def read_folder(folder: Path, is_wanted: Callable[[str], bool] = lambda _: True) -> Tensors:
    """Those of all its files that are wanted. Nothing but headers is read before they are used."""
    found: Tensors = {}
    for file in _listed(folder, is_wanted) or sorted(folder.glob("*.safetensors")):
        found |= {name: array for name, array in _load(file).items() if is_wanted(name)}
    return found


def _load(file: Path) -> Tensors:
    try:
        return cast(Tensors, mx.load(str(file)))
    except RuntimeError as why:
        raise StartupError(f"draft: {file} cannot be read: {why}") from why


def _listed(folder: Path, is_wanted: Callable[[str], bool]) -> list[Path]:
    """The files in which the index has them; none: it has not, or there is no index. Heads that
    were added later lie in files it does not name."""
    index = folder / INDEX
    if not index.is_file():
        return []
    files: Mapping[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    return sorted({folder / file for name, file in files.items() if is_wanted(name)})


def layers_in(tensors: Tensors) -> int:
    """Decoder layers, by their names; at least one."""
    numbers = [name.split(".")[1] for name in tensors if name.startswith("layers.")]
    return max((int(number) for number in numbers if number.isdigit()), default=0) + 1


def fill(network: nn.Module, tensors: Tensors, folder: Path, kind: str) -> None:
    """Quantised where the tensors are. Raises StartupError unless they are all of the network's
    and nothing else."""
    _quantise_as_stored(network, tensors)
    expected = dict(cast(list[tuple[str, mx.array]], tree_flatten(network.parameters())))
    for text, names in (
        (f"tensors that no {kind} head of this kind has", tensors.keys() - expected.keys()),
        (f"{kind} heads without", expected.keys() - tensors.keys()),
    ):
        if names:
            raise StartupError(f"draft: {folder} has {text}: {', '.join(sorted(names)[:5])}")
    for name, array in tensors.items():
        if array.shape != expected[name].shape:
            raise StartupError(
                f"draft: {folder} is not for this model: {name} is {array.shape}, it takes "
                f"{expected[name].shape}"
            )
    network.load_weights(list(tensors.items()))
    network.eval()


def _quantise_as_stored(network: nn.Module, tensors: Tensors) -> None:
    def how(path: str, module: nn.Module) -> Any:
        if not hasattr(module, "to_quantized") or f"{path}.scales" not in tensors:
            return False
        return infer_quant_config(path, module, tensors)

    nn.quantize(network, class_predicate=how)


def hold(network: nn.Module, dtype: mx.Dtype, *, is_dense: bool) -> None:
    if is_dense:
        dequantize_model(network)

    def held(name: str, array: mx.array) -> mx.array:
        is_plain = mx.issubdtype(array.dtype, mx.floating) and not name.endswith(EXACT)
        return array.astype(dtype) if is_plain else array

    network.update(tree_map_with_path(held, network.parameters()))


def quantise(network: nn.Module, quantization: Mapping[str, Any]) -> None:
    """As a target is whose config says so. What does not divide into groups stays dense, and so do
    routers of experts."""
    size = quantization["group_size"]

    def can(path: str, module: nn.Module) -> bool:
        if path.endswith(ROUTERS):
            return False
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % size == 0

    bits, mode = quantization["bits"], quantization.get("mode", "affine")
    nn.quantize(network, size, bits, mode=mode, class_predicate=can)


def is_quantised(network: nn.Module) -> bool:
    """Linear layers are what counts: some small ones cannot be made dense again."""
    return any(isinstance(module, nn.QuantizedLinear) for _, module in network.named_modules())
