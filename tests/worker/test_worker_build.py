import sys
from types import ModuleType
from typing import Any

import pytest

from mlxcel.link.messages import PartSpec
from mlxcel.worker.build import build_parts


def part(name: str, needs: list[str], provides: list[str]) -> PartSpec:
    return PartSpec(
        name=name,
        factory=f"mlxcel.parts_of_a_test:{name}",
        options={"from": name},
        needs=needs,
        provides=provides,
    )


@pytest.fixture
def parts_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("mlxcel.parts_of_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_part_gets_the_ports_it_needs_and_no_others(parts_module: Any) -> None:
    parts_module.wheel = lambda options, progress: ("wheel", options["from"])
    parts_module.bell = lambda options, progress: "bell"
    parts_module.cart = lambda options, progress, *, wheel: ("cart", wheel)
    specs = [
        part("wheel", [], ["wheel", "spare"]),
        part("bell", [], ["bell"]),
        part("cart", ["wheel"], ["cart"]),
    ]
    assert build_parts(specs, lambda step, fraction: None) == {
        "wheel": ("wheel", "wheel"),
        "spare": ("wheel", "wheel"),
        "bell": "bell",
        "cart": ("cart", ("wheel", "wheel")),
    }


def test_a_part_tells_its_progress(parts_module: Any) -> None:
    parts_module.wheel = lambda options, progress: progress("turning", 0.5)
    told: list[tuple[str, float | None]] = []
    build_parts([part("wheel", [], ["wheel"])], lambda *step: told.append(step))
    assert told == [("turning", 0.5)]
