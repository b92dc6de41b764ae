import pytest

from mlxcel.core.request import Message, ToolCall
from mlxcel.text.old_thoughts import outside_blocks, without_old_thoughts
from mlxcel.text.thinking import Marks

MARKS = Marks(opening="<think>", closing="</think>", open_ids=(1,), close_ids=(2,))
CALL = ToolCall(id="c", name="f", arguments="{}")
USER = Message(role="user", text="<think>mine</think>q")


def answer(text: str = "<think>a</think>b") -> Message:
    return Message(role="assistant", text=text, reasoning="r", calls=(CALL,))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("plain", "plain", id="no-block"),
        pytest.param("<think>\na\n</think>\n\nb", "b", id="block"),
        pytest.param("a <think>b</think> c<think>d</think>e", "a ce", id="two-blocks"),
        pytest.param("a</think>\nb", "b", id="opened-by-the-template"),
        pytest.param("b<think>a", "b", id="cut-off"),
        pytest.param("<think></think>", "", id="empty"),
        pytest.param("a</think>b</think>c", "b</think>c", id="second-closing-is-text"),
    ],
)
def test_text_outside_think_blocks(text: str, left: str) -> None:
    assert outside_blocks(text, MARKS) == left


def test_answers_before_the_latest_user_turn_lose_their_thoughts() -> None:
    tool = Message(role="tool", text="7", call_id="c")
    found = without_old_thoughts((USER, answer(), tool, answer(), USER, answer(), tool), MARKS)
    old = Message(role="assistant", text="b", calls=(CALL,))
    assert found == (USER, old, tool, old, USER, answer(), tool)


def test_a_train_of_thought_over_tools_is_kept() -> None:
    turns = (USER, answer(), Message(role="tool", text="7"), answer())
    assert without_old_thoughts(turns, MARKS) == turns


def test_conversation_without_a_user_is_left_alone() -> None:
    assert without_old_thoughts((answer(), answer()), MARKS) == (answer(), answer())
