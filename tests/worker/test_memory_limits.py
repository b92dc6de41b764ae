"""What the device has, and that a setting can only lower it."""

import os
from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.worker import memory
from mlxcel.worker.memory import cgroup_limit, request_budget, smallest, working_set_bytes
from mlxcel.worker.precision import Backend

GB = 1_000_000_000


def test_cpu_has_at_most_the_memory_of_the_machine() -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    held = working_set_bytes(Backend.CPU)
    assert held is not None
    assert 0 < held <= physical


def test_cpu_keeps_to_its_control_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "OWN_CGROUPS", tmp_path / "own")
    assert working_set_bytes(Backend.CPU) == 1_000_000


@pytest.mark.parametrize(
    ("device", "wired", "limit", "expected"),
    [
        pytest.param(24 * GB, 24 * GB, 36 * GB, 24 * GB, id="recommended"),
        pytest.param(24 * GB, 20 * GB, 36 * GB, 20 * GB, id="wired-cap"),
        pytest.param(24 * GB, 0, 36 * GB, 24 * GB, id="nothing-wired"),
        pytest.param(24 * GB, 24 * GB, 10 * GB, 10 * GB, id="allocator-limit"),
    ],
)
def test_metal_takes_the_least_of_three(
    monkeypatch: pytest.MonkeyPatch, device: int, wired: int, limit: int, expected: int
) -> None:
    caps = [wired]

    def set_wired(new: int) -> int:
        caps.append(new)
        return caps[-2]

    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": device})
    monkeypatch.setattr(mx, "set_wired_limit", set_wired)
    monkeypatch.setattr(mx, "get_memory_limit", lambda: limit)
    assert working_set_bytes(Backend.METAL) == expected
    assert caps[-1] == wired, "asking must change nothing"


@pytest.mark.parametrize(
    ("info", "active", "expected"),
    [
        pytest.param({"total_memory": 80 * GB, "free_memory": 60 * GB}, 0, 60 * GB, id="shared"),
        pytest.param(
            {"total_memory": 80 * GB, "free_memory": 44 * GB}, 16 * GB, 60 * GB, id="weights-loaded"
        ),
        pytest.param({"total_memory": 80 * GB}, 16 * GB, 64 * GB, id="free-unknown"),
        pytest.param({}, 0, 64 * GB, id="limit-alone"),
    ],
)
def test_cuda_counts_what_mlx_holds_as_its_own(
    monkeypatch: pytest.MonkeyPatch, info: dict[str, int], active: int, expected: int
) -> None:
    monkeypatch.setattr(mx, "device_info", lambda: info)
    monkeypatch.setattr(mx, "get_active_memory", lambda: active)
    monkeypatch.setattr(mx, "get_cache_memory", lambda: 0)
    monkeypatch.setattr(mx, "get_memory_limit", lambda: 64 * GB)
    assert working_set_bytes(Backend.CUDA) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [(None, 8 * GB), (24 * GB, 8 * GB), (2 * GB, 2 * GB)],
    ids=["unset", "above", "below"],
)
def test_setting_can_only_lower_the_budget(
    monkeypatch: pytest.MonkeyPatch, setting: int | None, expected: int
) -> None:
    monkeypatch.setattr(memory, "working_set_bytes", lambda backend: 8 * GB)
    assert request_budget(setting, Backend.CPU) == expected


def test_setting_holds_where_the_device_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "working_set_bytes", lambda backend: None)
    assert request_budget(5, Backend.CUDA) == 5
    assert request_budget(None, Backend.CUDA) is None


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        pytest.param("0::/a/b\n", {"a/memory.max": "700", "a/b/memory.max": "max"}, 700, id="v2"),
        pytest.param("0::/a/b\n", {"a/memory.max": "max"}, None, id="v2-no-limit"),
        pytest.param("0::/a\n", {"memory.max": "300"}, 300, id="v2-in-a-container"),
        pytest.param(
            "5:cpu:/x\n4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "900"}, 900, id="v1"
        ),
        pytest.param("4:cpu,memory:/a\n", {"memory/memory.limit_in_bytes": "80"}, 80, id="v1-root"),
        pytest.param("4:cpu:/a\n", {"memory/memory.limit_in_bytes": "80"}, None, id="v1-cpu-only"),
    ],
)
def test_limit_of_the_control_group(
    tmp_path: Path, own: str, files: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert cgroup_limit(tmp_path / "own", tmp_path / "groups") == expected


def test_no_control_groups(tmp_path: Path) -> None:
    assert cgroup_limit(tmp_path / "absent", tmp_path) is None


def test_smallest_of_what_is_known() -> None:
    assert smallest([None, 3, 2]) == 2
    assert smallest([None]) is None
