from typing import Any

import pytest

from mlxcel.config.keys import leaves, read, write


def test_reading_a_missing_key_names_all_of_it() -> None:
    with pytest.raises(KeyError, match=r"a\.nope\.x"):
        read({"a": {"b": 1}}, "a.nope.x")


def test_writing_makes_the_sections_that_are_missing() -> None:
    tree: dict[str, Any] = {"a": {"b": 1}}
    write(tree, "a.b", 2)
    write(tree, "c.d", 3)
    assert tree == {"a": {"b": 2}, "c": {"d": 3}}


def test_leaves_end_at_values_and_empty_mappings() -> None:
    found = list(leaves({"a": {"b": [1], "c": {}}, "d": None}))
    assert found == [("a.b", [1]), ("a.c", {}), ("d", None)]
