from hypothesis import given
from hypothesis import strategies as st

from mlxcel.text.shared import shared_chars

TEXTS = st.text(alphabet="ab", max_size=12)


@given(TEXTS, TEXTS, TEXTS)
def test_as_many_as_a_walk_finds(head: str, one: str, other: str) -> None:
    found = shared_chars(head + one, head + other)
    assert (head + one)[:found] == (head + other)[:found]
    assert (head + one)[found : found + 1] != (head + other)[found : found + 1] or (
        one == other and found == len(head + one)
    )
