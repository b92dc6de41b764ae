"""What the config.json of a DFlash head says, checked. Knows nothing of its target."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mlxcel.core.errors import StartupError

FULL, SLIDING = "full_attention", "sliding_attention"
NESTED = "dflash_config"
"""A block whose keys win over those of the top level."""
LEAST_WIDTH = 2
"""Tokens of a verify step: the last one and a proposal."""
DSPARK_WIDTH, DSPARK_WIDEST = 8, 32
"""Tokens of a verify step of a DSpark head: where the file does not say, and at most."""
OTHERS = {
    "selector_rank": "a head of the second generation",
    "conv_kernel_size": "a head of the second generation",
    "use_swa": "a head with one window for all layers",
    "fc_layernorm": "a head that norms each tapped layer",
}
"""Keys that change what a head computes, where they are neither 0 nor false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashConfig:
    """The names and defaults of the file."""

    hidden_size: int = 2560
    intermediate_size: int = 9728
    num_hidden_layers: int = 5
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int = 128
    rms_norm_eps: float = 1e-6
    vocab_size: int = 248320
    rope_theta: float = 1e7
    rope_scaling: Mapping[str, Any] | None = None
    max_position_embeddings: int = 262144
    tie_word_embeddings: bool = True
    block_size: int = 16
    mask_token_id: int = 248070
    target_layer_ids: tuple[int, ...] = (1, 8, 15, 22, 29)
    """In the order in which their outputs are concatenated."""
    num_target_layers: int = 32
    layer_types: tuple[str, ...] = ()
    """Of each layer; filled in where the file does not say."""
    sliding_window: int | None = None
    is_causal: bool = True
    """Of a block in a sliding layer: whether a position is kept from those behind it."""
    final_logit_softcapping: float | None = None
    rope_is_neox_style: bool = True
    """False: RoPE turns neighbours, not halves."""

    markov_rank: int = 0
    """Above 0 in a DSpark head: that of the correction by the token before."""
    markov_head_type: str = "vanilla"
    runtime_block_size: int = DSPARK_WIDTH
    """Of a DSpark head: how wide a verify step is best, less than it could be."""

    @property
    def is_dspark(self) -> bool:
        return self.markov_rank > 0

    @property
    def scaffold(self) -> int:
        """Positions at the beginning of a block that propose nothing."""
        return 0 if self.is_dspark else 1

    @property
    def widest(self) -> int:
        """Tokens of a verify step, with all that a block of the trained length proposes."""
        if self.is_dspark:
            return min(self.block_size + 1, DSPARK_WIDEST)
        return self.block_size

    @property
    def width(self) -> int:
        return min(self.runtime_block_size, self.widest) if self.is_dspark else self.widest

    def is_sliding(self, layer: int) -> bool:
        return self.layer_types[layer] == SLIDING


FIELDS = {field.name: field.default for field in fields(DFlashConfig)}
FROM_ZERO = {"mask_token_id", "markov_rank"}
COUNTS = {name for name, default in FIELDS.items() if type(default) is int} | {"sliding_window"}
NUMBERS = {"rms_norm_eps", "rope_theta", "final_logit_softcapping"}
FLAGS = {name for name, default in FIELDS.items() if type(default) is bool}


def read_config(folder: Path) -> DFlashConfig:
    """Raises StartupError for one that says what cannot be."""
    file = folder / "config.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise StartupError(f"draft.path: {file} cannot be read: {why}") from why
    nested = told.get(NESTED, {}) if isinstance(told, dict) else None
    if not isinstance(nested, dict):
        raise StartupError(f"draft.path: {file} (or its {NESTED}) is no JSON object")
    return _Reader(file, told | nested).config()


class _Reader:
    def __init__(self, file: Path, told: Mapping[str, Any]) -> None:
        self._file = file
        self._told = {name: value for name, value in told.items() if value is not None}

    def config(self) -> DFlashConfig:
        self._refuse_others()
        told = self._rope() | {name: self._told[name] for name in FIELDS if name in self._told}
        read: dict[str, Any] = {name: self._checked(name, value) for name, value in told.items()}
        read["target_layer_ids"] = self._taps(read)
        read["layer_types"] = self._layer_types(read)
        config = DFlashConfig(**read)
        self._check(config)
        return config

    def _refuse_others(self) -> None:
        for name, what in OTHERS.items():
            if self._told.get(name):
                self._refuse(name, f"that is {what}, which is not supported; use one without")

    def _rope(self) -> dict[str, Any]:
        """transformers 5 has theta and scaling in one block."""
        block = self._told.get("rope_parameters")
        if not block:
            return {}
        theta = {"rope_theta": block["rope_theta"]} if "rope_theta" in block else {}
        return theta | {"rope_scaling": block}

    def _checked(self, name: str, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in COUNTS:
            lowest = 0 if name in FROM_ZERO else 1
            if not is_number or value != int(value) or value < lowest:
                self._refuse(name, f"a whole number from {lowest} on is expected")
            return int(value)
        if name in NUMBERS and not (is_number and value > 0):
            self._refuse(name, "a number above 0 is expected")
        if name in FLAGS and not isinstance(value, bool):
            self._refuse(name, "true or false is expected")
        if name == "rope_scaling" and not isinstance(value, dict):
            self._refuse(name, "an object or null is expected")
        return value

    def _taps(self, read: Mapping[str, Any]) -> tuple[int, ...]:
        taps = read.get("target_layer_ids", FIELDS["target_layer_ids"])
        layers = read.get("num_target_layers", FIELDS["num_target_layers"])
        is_list = isinstance(taps, list | tuple) and all(type(tap) is int for tap in taps)
        if not is_list or not taps or len(set(taps)) < len(taps):
            self._refuse("target_layer_ids", "different layers of the target are expected")
        if not all(0 <= tap < layers for tap in taps):
            self._refuse("target_layer_ids", f"the target has layers 0 to {layers - 1}")
        return tuple(taps)

    def _layer_types(self, read: Mapping[str, Any]) -> tuple[str, ...]:
        count = read.get("num_hidden_layers", FIELDS["num_hidden_layers"])
        types = read.get("layer_types", [FULL] * count)
        if not isinstance(types, list) or len(types) != count or set(types) - {FULL, SLIDING}:
            self._refuse("layer_types", f"{count} of {FULL} or {SLIDING} are expected")
        return tuple(types)

    def _check(self, config: DFlashConfig) -> None:
        if config.block_size < LEAST_WIDTH:
            self._refuse("block_size", f"at least {LEAST_WIDTH} is expected")
        if config.runtime_block_size < LEAST_WIDTH:
            self._refuse("runtime_block_size", f"at least {LEAST_WIDTH} is expected")
        if config.is_dspark and config.markov_head_type != "vanilla":
            self._refuse("markov_head_type", "of DSpark heads only vanilla ones are supported")
        if SLIDING in config.layer_types and config.sliding_window is None:
            self._refuse("layer_types", "sliding layers need a sliding_window")
        if config.num_attention_heads % config.num_key_value_heads:
            self._refuse("num_key_value_heads", "it does not divide num_attention_heads")
        if config.mask_token_id >= config.vocab_size:
            self._refuse("mask_token_id", f"vocab_size is {config.vocab_size}")
        if config.hidden_size % 2:
            self._refuse("hidden_size", "an even number is expected")
        if (config.rope_scaling or {}).get("partial_rotary_factor", 1) != 1:
            self._refuse("rope_scaling", "RoPE has to turn all of a head")
        if self._told.get("hidden_act", "silu") != "silu":
            self._refuse("hidden_act", "silu is expected")

    def _refuse(self, name: str, why: str) -> None:
        if name == "rope_scaling" and name not in self._told:
            name = "rope_parameters"
        value = self._told.get(name, FIELDS.get(name))
        raise StartupError(f"draft.path: {self._file}: {name} is {value}: {why}")
