"""A checkpoint folder to a model in memory: the `model` part of a worker.

mlx-lm supplies the architecture and the reading; what the weights are held in is ours.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_reduce
from mlx_lm.utils import dequantize_model, get_total_parameters
from mlx_lm.utils import load_model as read_model

from mlxcel.core.errors import StartupError
from mlxcel.weights.fuse import fuse_projections
from mlxcel.weights.lora.install import Adapters, add_adapters
from mlxcel.worker import blas
from mlxcel.worker.base import Progress
from mlxcel.worker.heap import keep_freed_pages
from mlxcel.worker.memory import wire_weights
from mlxcel.worker.precision import Backend, Facts, decide

log = logging.getLogger(__name__)

HALF_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model with its weights resident. Never leaves the thread that loaded it (trap M1)."""

    network: nn.Module
    folder: Path
    config: Mapping[str, Any]
    precision: str
    backend: Backend
    parameters: int
    weights_bytes: int
    train_window: int
    """Tokens the model was trained on; 0 where the checkpoint does not say."""
    lora: Adapters | None = None

    @property
    def tokenizer_file(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def family(self) -> str:
        return str(self.config.get("model_type", "unknown"))

    @property
    def hidden_size(self) -> int:
        return int(self._text("hidden_size"))

    @property
    def vocab_size(self) -> int:
        return int(self._text("vocab_size"))

    def _text(self, key: str) -> int:
        nested = self.config.get("text_config") or {}
        return self.config.get(key) or nested.get(key) or 0


def load_model(options: Mapping[str, Any], progress: Progress) -> LoadedModel:
    """Read `options["path"]` in the precision that suits the device (`options["precision"]`).

    Raises StartupError when the folder does not hold a model mlx-lm can build, or when the
    device asked for is not there.
    """
    _choose_device(options["device"])
    backend = current_backend()
    _announce_blas(backend)
    if backend is Backend.CPU:
        keep_freed_pages()
    wire_weights(backend)
    progress("reading weights", None)
    network, config = _read(Path(options["path"]))
    parameters = get_total_parameters(network)
    is_quantised = any(hasattr(m, "bits") for _, m in network.named_modules())
    precision = decide(
        options["precision"],
        Facts(
            backend=backend,
            batch=options["batch"],
            is_quantised=is_quantised,
            dense_bytes=parameters * HALF_BYTES,
            memory_bytes=_device_memory(backend),
        ),
    )
    if precision.dtype is not None:
        progress(f"holding weights as {precision.dtype}", None)
        network = _hold(network, getattr(mx, precision.dtype), is_quantised)
    family = str(config.get("model_type", "unknown"))
    # After the precision: merged or not, adapters are held as the weights they change are.
    lora = add_adapters(network, options.get("lora"), family=family, backend=backend)
    if options["weight_materialization"] == "eager":
        _make_resident(network, progress)
    if _fuses(options["fuse_projections"], backend):
        progress("joining projections", None)
        log.info("%d groups of projections are one matrix each", fuse_projections(network))
    log.info("Model loaded")
    return LoadedModel(
        network=network,
        folder=Path(options["path"]),
        config=config,
        precision=str(precision),
        backend=backend,
        parameters=parameters,
        train_window=options["train_window"],
        weights_bytes=tree_reduce(lambda total, a: total + a.nbytes, network.parameters(), 0),
        lora=lora,
    )


def _fuses(asked: str | bool, backend: Backend) -> bool:
    """YAML reads on and off as booleans. Measured: 1.1 to 1.7 times the speed on CUDA, none on
    a CPU; on Metal it is for the operator to try."""
    return asked in (True, "on") or (asked == "auto" and backend is Backend.CUDA)


def _choose_device(asked: str) -> None:
    """`auto` is MLX's own choice: the GPU where there is one."""
    if asked == "auto":
        return
    device = mx.Device(mx.cpu if asked == "cpu" else mx.gpu)
    if not mx.is_available(device):
        raise StartupError(f"engine.device is {asked}, but MLX has no such device here; use auto")
    mx.set_default_device(device)


def current_backend() -> Backend:
    """The backend of MLX's default device."""
    if mx.default_device() == mx.Device(mx.cpu):
        return Backend.CPU
    return Backend.METAL if mx.metal.is_available() else Backend.CUDA


def _read(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    try:
        network, config = read_model(folder, lazy=True)
    except (ValueError, FileNotFoundError, RuntimeError, KeyError, TypeError) as why:
        raise StartupError(f"{folder} cannot be loaded: {why}") from why
    network.eval()
    return network, config


def _hold(network: nn.Module, dtype: mx.Dtype, is_quantised: bool) -> nn.Module:
    if is_quantised:
        network = dequantize_model(network)
    network.set_dtype(dtype)
    return network


def _make_resident(network: nn.Module, progress: Progress) -> None:
    """Evaluate the weights layer by layer, so that a person sees how far it is and the lazy
    source of a converted array is freed before the next one is read."""
    flat = cast(list[tuple[str, mx.array]], tree_flatten(network.parameters()))
    arrays = [array for _, array in flat]
    step = max(1, len(arrays) // 20)
    for start in range(0, len(arrays), step):
        mx.eval(arrays[start : start + step])
        progress("loading weights", min(1.0, (start + step) / len(arrays)))
    mx.clear_cache()


def _device_memory(backend: Backend) -> int | None:
    if backend is Backend.CPU:
        return None
    info = mx.device_info()
    # Metal, then CUDA: what is free there is what dense weights may use.
    names = ("max_recommended_working_set_size", "free_memory", "total_memory", "memory_size")
    size = next((info[name] for name in names if info.get(name)), None)
    return None if size is None else int(size)


def _announce_blas(backend: Backend) -> None:
    if backend is not Backend.CPU:
        return
    if (name := blas.loaded()) is not None:
        log.info("BLAS: %s", name)
    else:
        log.warning(
            "no fast BLAS found: prefill will be about 20 times slower; "
            "install one with: pip install 'mlxcel[blas]'"
        )
