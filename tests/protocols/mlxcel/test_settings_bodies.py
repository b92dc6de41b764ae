"""How a patch and a revert of the settings are asked for."""

from typing import Any

import pytest

from mlxcel.core.errors import BadRequest
from mlxcel.protocols.mlxcel.settings import PatchBody, PatchShape, read_patch, read_revert


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        pytest.param({}, PatchBody(values={}), id="empty"),
        pytest.param({"a": 1}, PatchBody(values={"a": 1}), id="flat"),
        pytest.param({"atomic": True}, PatchBody(values={"atomic": True}), id="flat-atomic-name"),
        pytest.param({"values": {"a": 1}}, PatchBody(values={"a": 1}), id="wrapped"),
        pytest.param({"op": None, "values": {}}, PatchBody(values={}), id="null-op"),
        pytest.param(
            {"op": "replace", "values": {}}, PatchBody(values={}, op="replace"), id="replace"
        ),
        pytest.param(
            {"atomic": True, "values": {}}, PatchBody(values={}, atomic=True), id="atomic"
        ),
    ],
)
def test_a_patch_is_read(body: dict[str, Any], asked: PatchBody) -> None:
    assert read_patch(body) == asked


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param([1], "got array", id="not-an-object"),
        pytest.param(None, "got null", id="null"),
        pytest.param({"op": "swap", "values": {}}, '"swap"', id="unknown-op"),
        pytest.param({"op": "merge"}, "needs the key values", id="no-values"),
        pytest.param({"values": "x"}, "values must be an object, got string", id="values-type"),
        pytest.param({"values": {}, "b": 1, "a": 1}, "a, b", id="third-keys"),
        pytest.param({"values": {}, "atomic": 1}, "atomic must be a boolean", id="atomic-type"),
    ],
)
def test_a_shape_that_is_no_patch_is_told(body: Any, says: str) -> None:
    with pytest.raises(PatchShape, match=says):
        read_patch(body)


def test_a_revert_names_a_version_or_nothing() -> None:
    assert read_revert({}) is None
    assert read_revert({"version": 3}) == 3


@pytest.mark.parametrize(
    "body", [[], {"version": "3"}, {"versoin": 3}], ids=["array", "type", "typo"]
)
def test_a_revert_that_cannot_be_read_is_refused(body: Any) -> None:
    with pytest.raises(BadRequest):
        read_revert(body)
