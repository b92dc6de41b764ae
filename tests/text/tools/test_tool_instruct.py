import pytest

from mlxcel.core.request import Message, ToolChoice, ToolMode
from mlxcel.text.tools.instruct import with_instruction

REQUIRED = ToolChoice(mode=ToolMode.REQUIRED)
NAMED = ToolChoice(mode=ToolMode.NAMED, name="ping")


def turns(*roles: str) -> list[Message]:
    return [Message(role=role, text=f"{role} {n}") for n, role in enumerate(roles)]


@pytest.mark.parametrize(
    ("roles", "changed"),
    [
        pytest.param(["user", "system", "system", "user"], 1, id="first-system"),
        pytest.param(["developer", "user"], 0, id="developer-is-system"),
        pytest.param(["user", "assistant", "user", "tool"], 2, id="last-user"),
    ],
)
def test_it_is_appended_to_one_message(roles: list[str], changed: int) -> None:
    before = turns(*roles)
    after = with_instruction(before, REQUIRED)
    assert [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [changed]
    told = after[changed].text
    assert told.startswith(before[changed].text + "\n\n")
    assert "one or more" in told


def test_it_becomes_a_system_message_where_there_is_no_other_place() -> None:
    before = turns("assistant", "tool")
    first, *rest = with_instruction(before, NAMED)
    assert rest == before
    assert first.role == "system"
    assert "`ping`" in first.text


def test_an_empty_message_holds_nothing_but_the_instruction() -> None:
    (told,) = with_instruction([Message(role="system")], NAMED)
    assert told.text.startswith("You must")


@pytest.mark.parametrize("mode", [ToolMode.AUTO, ToolMode.NONE])
def test_a_free_choice_changes_nothing(mode: ToolMode) -> None:
    before = turns("system", "user")
    assert with_instruction(before, ToolChoice(mode=mode)) == tuple(before)
