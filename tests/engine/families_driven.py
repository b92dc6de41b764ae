"""Drivers of other families: the tiny checkpoint's surroundings, with a network of another kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.engine import driver as driving
from tests.tiny.families import network_of


@contextmanager
def driven(config: dict[str, Any]) -> Iterator[None]:
    """Drivers made meanwhile run a random network of this config."""
    network, load = network_of(config), driving.load_model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            driving,
            "load_model",
            lambda *args: replace(load(*args), network=network, config=config),
        )
        yield
