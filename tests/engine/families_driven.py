"""Drivers of other families: the tiny checkpoint's surroundings, with a network of another kind."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import mlx.nn as nn
import pytest

from tests.engine import driver as driving
from tests.engine.driver import Driver, submit
from tests.tiny.families import network_of

_told: dict[tuple[str, tuple[int, ...], int], list[int]] = {}


@cache
def _network(config: str) -> nn.Module:
    """Drivers leave it as it is."""
    return network_of(json.loads(config))


def said_cold(driver: Driver, prompt: list[int], length: int = 12) -> list[int]:
    """What the family of a driver says where no cache is asked; once for all tests."""
    asked = (json.dumps(driver.model.config), tuple(prompt), length)
    if asked not in _told:
        _told[asked] = driver.alone(submit(f"cold-{len(_told)}", prompt, length))
    return _told[asked]


@contextmanager
def driven(config: dict[str, Any]) -> Iterator[None]:
    """Drivers made meanwhile run a random network of this config."""
    network, load = _network(json.dumps(config)), driving.load_model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            driving,
            "load_model",
            lambda *args: replace(load(*args), network=network, config=config),
        )
        yield
