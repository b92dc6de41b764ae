"""A settings store over the composed configuration."""

from functools import cache
from typing import Any

from mlxcel.config.asked import Asked
from mlxcel.config.compose import compose
from mlxcel.config.settings import SettingsStore


@cache
def tree(*words: str) -> dict[str, Any]:
    """Shared between tests: not to be changed."""
    return compose(Asked(overrides=words)).tree


def new_store(*words: str) -> SettingsStore:
    return SettingsStore.from_tree(tree(*words))
