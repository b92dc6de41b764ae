"""How much memory there is for weights, KV and activations, and what MLX may keep resident."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

import mlx.core as mx

from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def wire_weights(backend: Backend) -> None:
    """Let Metal keep the working set resident, as mlx-lm does: paged-out weights make the first
    tokens after a pause slow. Nothing to do elsewhere."""
    if backend is not Backend.METAL:
        return
    limit = int(mx.device_info()["max_recommended_working_set_size"])
    mx.set_wired_limit(limit)
    log.info("wired limit: %.1f GB", limit / 1e9)


def working_set_bytes(backend: Backend) -> int | None:
    """Bytes that weights, KV and activations may take together; None where the device does not
    say. Right before and after the weights are loaded."""
    match backend:
        case Backend.METAL:
            return _metal()
        case Backend.CUDA:
            return _cuda()
        case Backend.CPU:
            return smallest([_physical(), cgroup_limit(OWN_CGROUPS, CGROUPS)])


def request_budget(setting: int | None, backend: Backend) -> int | None:
    """Bytes that one request may take, weights included. `setting`
    (`limits.request_memory_budget`) can only lower what the device has."""
    return smallest([setting, working_set_bytes(backend)])


def smallest(limits: Iterable[int | None]) -> int | None:
    """Of those that are known."""
    return min((limit for limit in limits if limit is not None), default=None)


def cgroup_limit(own: Path, root: Path) -> int | None:
    """The least memory limit of this process's control groups and those around them, as of
    `/proc/self/cgroup` (`own`) and the tree below `root`; versions 1 and 2."""
    if not own.is_file():
        return None
    limits: list[int | None] = []
    for line in own.read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            limits += _limits(root, name, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "memory", name, "memory.limit_in_bytes")
    return smallest(limits)


def _limits(root: Path, name: str, file: str) -> list[int | None]:
    """Of the group and its parents. In a container the root is the group itself."""
    group = root / name.lstrip("/")
    return [_number(folder / file) for folder in (group, *group.parents) if _within(folder, root)]


def _within(folder: Path, root: Path) -> bool:
    return folder == root or root in folder.parents


def _number(path: Path) -> int | None:
    """None for no such file, and for `max`."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):  # names this system does not have
        return None


def _metal() -> int | None:
    """What is wired stays resident and more than that is slow; MLX allocates up to its own
    limit."""
    recommended = int(mx.device_info()["max_recommended_working_set_size"])
    return smallest([recommended, _wired_cap(recommended), mx.get_memory_limit() or None])


def _wired_cap(recommended: int) -> int | None:
    """MLX has no way to ask but to set. 0, its default, is no cap: nothing is wired."""
    cap = mx.set_wired_limit(recommended)
    mx.set_wired_limit(cap)
    return cap or None


def _cuda() -> int | None:
    """What is free and what MLX itself holds, within MLX's own limit (by default 0.8 of all:
    beyond it every allocation empties the allocator's cache first)."""
    info = mx.device_info()
    total, free = info.get("total_memory"), info.get("free_memory")
    held = mx.get_active_memory() + mx.get_cache_memory()
    return smallest(
        [
            None if total is None else int(total),
            None if free is None else int(free) + held,
            mx.get_memory_limit() or None,
        ]
    )
