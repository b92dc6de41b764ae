"""Names of files that clients choose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.file_names import is_plain_name

REFUSED = ':*?"<>|\uff0e\u2215\u2216\ufffd\ufeff'


@pytest.mark.parametrize(
    "name",
    ["a.bin", ".hidden", "chat a (1).bin", "ünïcode.bin", "%20", "a%2", "x" * 255, "a.b.c"],
)
def test_plain_names(name: str) -> None:
    assert is_plain_name(name)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param(".", id="dot"),
        pytest.param("..", id="dots"),
        pytest.param("a..b", id="dots-inside"),
        pytest.param("a.", id="trailing-dot"),
        pytest.param(" a", id="leading-space"),
        pytest.param("a ", id="trailing-space"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("sub/a.bin", id="folder"),
        pytest.param("../a.bin", id="above"),
        pytest.param("sub\\a.bin", id="backslash"),
        pytest.param("a\0b", id="zero"),
        pytest.param("a\nb", id="newline"),
        pytest.param("a\x7f", id="delete"),
        pytest.param("a\x85", id="c1"),
        pytest.param("a\ud800", id="surrogate"),
        pytest.param("x" * 256, id="too-long"),
        pytest.param("é" * 128, id="too-many-bytes"),
        *(
            pytest.param(f"a{c}b", id=f"u{ord(c):04x}")
            for c in ':*?"<>|\uff0e\u2215\u2216\ufffd\ufeff'
        ),
        *(pytest.param(f"a{e}b", id=e) for e in ("%2e", "%2E", "%2f", "%2F", "%5c", "%5C", "%00")),
    ],
)
def test_other_names(name: str) -> None:
    assert not is_plain_name(name)


@given(st.text(max_size=40))
def test_a_plain_name_is_one_part_of_a_path(name: str) -> None:
    if is_plain_name(name):
        assert not {"/", "\\", "\0"} & set(name)
        assert name not in ("", ".", "..")
        assert len(name.encode()) <= 255
