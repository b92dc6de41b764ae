"""The typed readers: what each takes, and what its refusal says."""

import pytest

from mlxcel.core.errors import BadField
from mlxcel.protocols.fields import Reader, json_type, shown


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param("integer", 7.0, id="integer-from-float"),
        pytest.param("integer", True, id="integer-from-boolean"),
        pytest.param("integer", "7", id="integer-from-string"),
        pytest.param("number", True, id="number-from-boolean"),
        pytest.param("number", "0.5", id="number-from-string"),
        pytest.param("boolean", 1, id="boolean-from-integer"),
        pytest.param("boolean", "true", id="boolean-from-string"),
        pytest.param("string", 7, id="string-from-integer"),
        pytest.param("items", {"a": 1}, id="array-from-object"),
        pytest.param("mapping", [1], id="object-from-array"),
        pytest.param("strings", ["a", 1], id="strings-with-a-number"),
        pytest.param("strings", {"a": 1}, id="strings-from-object"),
    ],
)
def test_a_wrong_type_is_refused_with_field_and_value(kind: str, value: object) -> None:
    with pytest.raises(BadField) as caught:
        getattr(Reader({"f": value}, "messages[0]"), kind)("f")
    assert caught.value.param == "messages[0].f"
    assert caught.value.message == f"messages[0].f: {caught.value.message.split(': ', 1)[1]}"
    assert f"got {json_type(value)} {shown(value)}" in caught.value.message


@pytest.mark.parametrize(
    "kind", ["string", "boolean", "integer", "number", "items", "mapping", "strings"]
)
@pytest.mark.parametrize("body", [{}, {"f": None}], ids=["absent", "null"])
def test_null_is_absent(kind: str, body: dict[str, object]) -> None:
    assert getattr(Reader(body), kind)("f") is None


@pytest.mark.parametrize("value", [0, 2**31, -5], ids=["zero", "large", "negative"])
def test_an_integer_is_read(value: int) -> None:
    assert Reader({"f": value}).integer("f") == value


def test_an_integer_is_a_number() -> None:
    assert Reader({"f": 1}).number("f") == 1.0


def test_bounds_are_named() -> None:
    with pytest.raises(BadField, match="f: wants a value of at least 0, got -1"):
        Reader({"f": -1}).integer("f", minimum=0)
    with pytest.raises(BadField, match=r"f: wants a value of at most 0\.5, got 0\.6"):
        Reader({"f": 0.6}).number("f", maximum=0.5)


def test_either_spelling_is_read() -> None:
    assert Reader({"b": 3}).integer("a", "b") == 3


def test_two_spellings_are_refused() -> None:
    with pytest.raises(BadField, match="b: is another spelling of a"):
        Reader({"a": 1, "b": 1}).integer("a", "b")


def test_a_null_spelling_does_not_count() -> None:
    assert Reader({"a": None, "b": 1}).integer("a", "b") == 1


def test_one_string_is_a_list_of_one() -> None:
    assert Reader({"f": "a"}).strings("f") == ("a",)


def test_a_nested_reader_knows_its_place() -> None:
    nested = Reader({"o": {"f": 1}}).nested("o")
    assert nested is not None
    assert nested.name("f") == "o.f"


def test_a_long_value_is_cut() -> None:
    assert len(shown("x" * 1000)) < 70
    assert len(shown([{"k": "v"}] * 1000)) < 70
