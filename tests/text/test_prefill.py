import pytest

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import Message, ToolCall
from mlxcel.text.prefill import Places, Prompt, render_prompt
from mlxcel.text.template import ChatTemplate

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[answer]"
PRIMED = PLAIN + "{{ '<think>\n' }}"
USER = Message(role="user", text="q")
CALL = ToolCall(id="c", name="f", arguments="{}")


def prompt(*messages: Message, source: str = PLAIN, prefill: bool = True) -> Prompt:
    template = ChatTemplate(source, origin="test", special_tokens={})
    return render_prompt(template, messages, {}, prefill=prefill)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param(Message(role="assistant", text="Once"), "[user]q[answer]Once", id="text"),
        pytest.param(Message(role="assistant"), "[user]q[answer]", id="empty"),
        pytest.param(
            Message(role="assistant", text="t", calls=(CALL,)),
            "[user]q[assistant]t[answer]",
            id="tool-calls-are-a-finished-turn",
        ),
        pytest.param(USER, "[user]q[user]q[answer]", id="user"),
    ],
)
def test_last_message(last: Message, expected: str) -> None:
    begun = "Once" if expected.endswith("Once") else ""
    assert prompt(USER, last) == Prompt(text=expected, begun=begun, echoed=begun)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param(Message(role="assistant", text="A"), "<think>\n</think>A", id="text"),
        pytest.param(Message(role="assistant", reasoning="R"), "<think>\nR", id="reasoning"),
        pytest.param(
            Message(role="assistant", text="A", reasoning="R"), "<think>\nR</think>A", id="both"
        ),
    ],
)
def test_open_think_block_is_used_or_closed(last: Message, expected: str) -> None:
    found = prompt(USER, last, source=PRIMED)
    assert found.text == f"[user]q[answer]{expected}"
    assert found.begun == expected.removeprefix("<think>\n")
    assert found.echoed == last.text


def test_reasoning_alone_needs_an_open_think_block() -> None:
    with pytest.raises(BadRequest, match="reasoning but no text"):
        prompt(USER, Message(role="assistant", reasoning="R"))


def test_two_answers_at_the_end_are_refused() -> None:
    answer = Message(role="assistant", text="a")
    with pytest.raises(BadRequest, match="Cannot have 2 or more assistant messages at the end"):
        prompt(USER, answer, answer)


@pytest.mark.parametrize("answers", [1, 2])
def test_switched_off_an_answer_at_the_end_is_a_turn_like_any_other(answers: int) -> None:
    found = prompt(USER, *answers * [Message(role="assistant", text="a")], prefill=False)
    assert found == Prompt(text="[user]q" + answers * "[assistant]a" + "[answer]")


ASKING = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SYSTEM = Message(role="system", text="s")
BOTH = Places(history=True, system=True)


def placed(*messages: Message, source: str = ASKING) -> tuple[str, str]:
    """The texts up to the two places."""
    template = ChatTemplate(source, origin="test", special_tokens={})
    found = render_prompt(template, messages, {}, places=BOTH)
    return found.text[: found.system], found.text[: found.history]


@pytest.mark.parametrize(
    ("messages", "system", "history"),
    [
        pytest.param([USER], "", "[user]q", id="user"),
        pytest.param([SYSTEM, USER], "[system]s", "[system]s[user]q", id="system"),
        pytest.param(
            [SYSTEM, SYSTEM, USER], "[system]s" * 2, "[system]s[system]s[user]q", id="two"
        ),
        pytest.param([USER, SYSTEM], "", "[user]q[system]s", id="system-later"),
        pytest.param(
            [USER, Message(role="assistant", text="Once")], "", "[user]q", id="answer-begun"
        ),
    ],
)
def test_places_of_a_prompt(messages: list[Message], system: str, history: str) -> None:
    assert placed(*messages) == (system, history)


def test_history_ends_where_it_parts_from_the_prompt() -> None:
    ended = ASKING + "{% if not add_generation_prompt %}[ass]{% endif %}"
    assert placed(USER, source=ended) == ("", "[user]q[ass")


def test_template_that_never_asks_has_all_as_history() -> None:
    assert placed(USER, source=PLAIN) == ("", "[user]q[answer]")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "{% if messages | length == 1 %}{{ raise_exception('lonely') }}{% endif %}" + ASKING,
            id="refused",
        ),
        pytest.param("{{ messages | length }}" + ASKING, id="other-text"),
    ],
)
def test_system_that_is_not_to_be_told_apart_has_no_place(source: str) -> None:
    assert placed(SYSTEM, USER, source=source)[0] == ""


def test_places_are_looked_for_only_when_wanted() -> None:
    found = prompt(SYSTEM, USER)
    assert (found.history, found.system) == (0, 0)
