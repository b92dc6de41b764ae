"""The names of the KV modes, and the ways to ask for one (engine contract, cache 10)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import StartupError
from mlxcel.core.kv_modes import ALIASES, PAIRS, PLAIN, TYPE_ALIASES
from mlxcel.engine.kv.codec import AFFINE_GROUPS

log = logging.getLogger(__name__)

RECENT = 128
"""Values of a row that `turbo4-delegated` keeps as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    name: str
    keys: str = "plain"
    """plain int8 turbo4 turbo3 affine"""
    values: str = "plain"
    recent: int = 0
    bits: int = 0
    """Of `cache.kv.bits`; 0: asked for by name."""
    group: int = 0

    @property
    def is_plain(self) -> bool:
        return self.keys == self.values == "plain"

    @property
    def is_turbo(self) -> bool:
        return self.values.startswith("turbo")


MODES = {
    mode.name: mode
    for mode in (
        Mode(name="fp16"),
        Mode(name="int8", keys="int8", values="int8"),
        Mode(name="fp16+turbo4", values="turbo4"),
        Mode(name="turbo4", keys="turbo4", values="turbo4"),
        Mode(name="turbo4-delegated", values="turbo4", recent=RECENT),
        Mode(name="fp16+turbo3", values="turbo3"),
    )
}


def asked_mode(kv: Mapping[str, Any]) -> Mode:
    """`kv` is the section `cache.kv`. Raises StartupError for what is no mode."""
    mode = _split(kv) or _named(kv["mode"])
    if not kv["bits"]:
        return mode
    if not mode.is_plain:
        raise StartupError(
            f"cache.kv.bits = {kv['bits']} and the KV mode {mode.name} exclude each other; "
            "leave one of them out"
        )
    return _of_bits(kv["bits"], kv["group_size"], kv["scheme"])


def _named(name: str) -> Mode:
    name = ALIASES.get(name, name)
    if name not in MODES:
        known = ", ".join((*MODES, *ALIASES))
        raise StartupError(f"cache.kv.mode = {name!r} is no KV mode; there are {known}")
    return MODES[name]


def _split(kv: Mapping[str, Any]) -> Mode | None:
    if kv["type_k"] is None and kv["type_v"] is None:
        return None
    keys, values = kv["type_k"] or PLAIN, kv["type_v"] or PLAIN
    pair = (TYPE_ALIASES.get(keys, keys), TYPE_ALIASES.get(values, values))
    if pair not in PAIRS:
        known = ", ".join(f"{keys}/{values}" for keys, values in PAIRS)
        raise StartupError(
            f"cache.kv.type_k = {pair[0]} with cache.kv.type_v = {pair[1]} is no KV mode; "
            f"there are {known}"
        )
    mode = MODES[PAIRS[pair]]
    if kv["mode"] != "fp16" and _named(kv["mode"]) != mode:
        log.warning(
            "cache.kv.type_k and type_v ask for KV mode %s, which wins over cache.kv.mode %s",
            mode.name,
            kv["mode"],
        )
    return mode


def _of_bits(bits: int, group: int, scheme: str) -> Mode:
    known = {"uniform": (4, 8), "turboquant": (4,)}
    if bits not in known.get(scheme, ()):
        ways = "; ".join(f"{name}: {', '.join(map(str, of))}" for name, of in known.items())
        raise StartupError(
            f"cache.kv.bits = {bits} with cache.kv.scheme = {scheme} is not there; 0, or {ways}"
        )
    if scheme == "turboquant":
        return Mode(name="turboquant-4", keys="turbo4", values="turbo4", bits=bits)
    if group not in AFFINE_GROUPS:
        raise StartupError(
            f"cache.kv.group_size = {group}: a group has {', '.join(map(str, AFFINE_GROUPS))}"
        )
    return Mode(name=f"uniform-{bits}", keys="affine", values="affine", bits=bits, group=group)
