import pytest

from mlxcel.core.errors import StartupError
from mlxcel.core.factory import load_factory
from mlxcel.core.window import slot_share


def test_a_name_is_imported() -> None:
    assert load_factory("mlxcel.core.window:slot_share") is slot_share


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("os:system", "does not start with 'mlxcel.'", id="foreign"),
        pytest.param("mlxcelx.core:X", "does not start with 'mlxcel.'", id="look-alike"),
        pytest.param("mlxcel.nowhere:X", "cannot be imported", id="no-module"),
        pytest.param("mlxcel.core.window:Nothing", "cannot be imported", id="no-name"),
    ],
)
def test_a_name_that_is_not_ours_or_not_there_is_refused(name: str, why: str) -> None:
    with pytest.raises(StartupError, match=why):
        load_factory(name)
