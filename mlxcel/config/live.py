"""The published tree of live settings: an OmegaConf tree that is copied, never changed in place.

Also what is derived from it: the frozen `Settings` and the fingerprint.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mlxcel.core.language import from_config
from mlxcel.core.settings import SamplingDefaults, Settings
from mlxcel.core.steering import LoopGuard

if TYPE_CHECKING:
    from omegaconf import DictConfig


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The new values that differ as JSON: `true` is not 1, though Python finds them equal."""
    return {name: value for name, value in new.items() if _text(value) != _text(old[name])}


def fingerprint(values: Mapping[str, Any]) -> str:
    """64 hex digits over the values, whatever the order they were set in."""
    return hashlib.sha256(_text(values).encode("utf-8", "surrogatepass")).hexdigest()


def _text(value: object) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict
    )


def frozen(plain: Mapping[str, Any]) -> "DictConfig":
    """Struct and read-only."""
    from omegaconf import OmegaConf

    live = OmegaConf.create(dict(plain))
    OmegaConf.set_struct(live, True)
    OmegaConf.set_readonly(live, True)
    return live


def laid(live: "DictConfig", values: Mapping[str, Any]) -> "DictConfig":
    """A copy with these leaves replaced; a leaf that is an object is replaced whole."""
    from omegaconf import OmegaConf

    working = copy.deepcopy(live)
    OmegaConf.set_readonly(working, False)
    for key, value in values.items():
        OmegaConf.update(working, key, value, merge=False)
    OmegaConf.set_readonly(working, True)
    return working


def snapshot(live: "DictConfig", version: int, digest: str) -> Settings:
    """What the rest of the program reads; never resolves an interpolation."""
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(live.live, resolve=False)
    language = plain["lang_bias"]
    return Settings(
        version=version,
        fingerprint=digest,
        sampling=_sampling(plain["sampling"]),
        decode_timeout_s=plain["decode"]["timeout_seconds"],
        template_kwargs=MappingProxyType(plain["chat_template"]["kwargs"]),
        reasoning_budget=plain["reasoning"]["budget"],
        loop=_loop(plain["loop_detection"]),
        language=None if language is None else from_config(language),
    )


def _loop(section: Mapping[str, int] | None) -> LoopGuard | None:
    """0 as the least pattern counts as 1."""
    if section is None:
        return None
    return LoopGuard(
        shortest=max(1, section["min_pattern_size"]),
        longest=section["max_pattern_size"],
        count=section["min_count"],
    )


def _sampling(section: Mapping[str, Any]) -> SamplingDefaults:
    own = {name: value for name, value in section.items() if name != "dry"}
    dry = {f"dry_{name}": value for name, value in section["dry"].items()}
    breakers = tuple(dry.pop("dry_sequence_breakers"))
    return SamplingDefaults(**own, **dry, dry_sequence_breakers=breakers)
