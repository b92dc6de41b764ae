"""Thoughts that are kept and put back into later turns."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.cache import CacheUse
from mlxcel.core.request import Message, ToolCall
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.options import ChatOptions, ReasoningFormat
from mlxcel.generation.prepare import Prepared, prepare
from mlxcel.generation.reecho import ReasoningEcho, Trail
from tests.generation.speaking import THINKS, USER_HI, WEATHER, asked, chat_model

MIB_16 = 16 * 1024 * 1024
SHOWING = (
    "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}|{{ m.reasoning }}|"
    "{{ m.content }}{% endfor %}"
)
ON: dict[str, Any] = {"caches": True, "echo_bytes": MIB_16}
THINKER = chat_model(SHOWING, THINKS, **ON)
YES = Message(role="assistant", text="Yes.")
NEXT = Message(role="user", text="and?")


def prepared(
    *messages: Message, echo: ReasoningEcho, model: ChatModel = THINKER, **changes: Any
) -> Prepared:
    return prepare(
        asked(*messages, **changes),
        model=model,
        window=0,
        vocab_size=264,
        family="llama",
        echo=echo,
    )


def remembering(*messages: Message, thoughts: str = "I wonder", **changes: Any) -> ReasoningEcho:
    """What has kept the thoughts of the answer `Yes.` to these messages."""
    echo = ReasoningEcho(max_bytes=MIB_16)
    trail = prepared(*messages, echo=echo, **changes).trail
    assert trail is not None
    echo.keep(trail.key(YES.text), thoughts)
    return echo


def thoughts_of(one: Prepared) -> list[str]:
    return [m.reasoning for m in one.request.prompt.messages if m.role == "assistant"]


def test_same_turns_get_the_thoughts_back_under_both_names() -> None:
    one = prepared(USER_HI, YES, NEXT, echo=remembering(USER_HI))
    assert thoughts_of(one) == ["I wonder"]
    words = b"[user]||hi[assistant]I wonder|I wonder|Yes.[user]||and?"
    assert bytes(one.submit.tokens[::4]) == words


@pytest.mark.parametrize(
    ("messages", "changes"),
    [
        pytest.param((USER_HI, replace(YES, text="Yes"), NEXT), {}, id="edited-answer"),
        pytest.param((replace(USER_HI, text="hi "), YES, NEXT), {}, id="edited-question"),
        pytest.param((Message(role="system", text="s"), USER_HI, YES, NEXT), {}, id="more-before"),
        pytest.param(
            (USER_HI, YES, NEXT), {"cache": CacheUse(session="eve")}, id="another-session"
        ),
        pytest.param((USER_HI, YES, NEXT), {"prompt": {"kwargs": {"a": 1}}}, id="other-kwargs"),
        pytest.param((USER_HI, YES, NEXT), {"prompt": {"tools": (WEATHER,)}}, id="other-tools"),
        pytest.param((USER_HI, YES, NEXT), {"cache": CacheUse(is_on=False)}, id="cold-request"),
    ],
)
def test_whatever_differs_is_a_miss_that_changes_nothing(
    messages: tuple[Message, ...], changes: dict[str, Any]
) -> None:
    one = prepared(*messages, echo=remembering(USER_HI), **changes)
    assert one.request == asked(*messages, **changes)


def test_length_and_sampling_are_no_difference() -> None:
    one = prepared(USER_HI, YES, NEXT, echo=remembering(USER_HI), max_tokens=3, stop=("x",))
    assert thoughts_of(one) == ["I wonder"]


def test_thoughts_of_the_client_win() -> None:
    own = replace(YES, reasoning="mine")
    assert thoughts_of(prepared(USER_HI, own, NEXT, echo=remembering(USER_HI))) == ["mine"]


def test_turn_with_calls_is_left_alone() -> None:
    calling = replace(YES, calls=(ToolCall(id="c", name="f", arguments="{}"),))
    assert thoughts_of(prepared(USER_HI, calling, NEXT, echo=remembering(USER_HI))) == [""]


def test_thoughts_put_back_stand_before_later_turns() -> None:
    echo = remembering(USER_HI)
    trail = prepared(USER_HI, YES, NEXT, echo=echo).trail
    assert trail is not None
    echo.keep(trail.key("No."), "again")
    turns = (USER_HI, YES, NEXT, Message(role="assistant", text="No."), NEXT)
    assert thoughts_of(prepared(*turns, echo=echo)) == ["I wonder", "again"]
    # The same for a client that sends the first thoughts itself, but not for other ones.
    for mine, second in (("I wonder", "again"), ("else", "")):
        sent = (USER_HI, replace(YES, reasoning=mine), *turns[2:])
        assert thoughts_of(prepared(*sent, echo=echo)) == [mine, second]


def test_answer_begun_is_not_remembered() -> None:
    assert prepared(USER_HI, YES, echo=ReasoningEcho(max_bytes=MIB_16)).trail is None


@pytest.mark.parametrize(
    ("options", "is_on"),
    [
        pytest.param({}, True, id="auto"),
        pytest.param({"format": ReasoningFormat.DEEPSEEK}, True, id="deepseek"),
        pytest.param({"format": ReasoningFormat.LEGACY}, False, id="deepseek-legacy"),
        pytest.param({"format": ReasoningFormat.NONE}, False, id="none"),
        pytest.param({"parses": False}, False, id="skip-chat-parsing"),
        pytest.param({"caches": False}, False, id="no-prompt-cache"),
        pytest.param({"echo_bytes": 0}, False, id="no-bytes"),
    ],
)
def test_where_thoughts_are_put_back(options: dict[str, Any], is_on: bool) -> None:
    assert ChatOptions(**(ON | options)).echoes_reasoning is is_on


def test_model_that_does_not_think_has_nothing_to_put_back() -> None:
    one = prepared(USER_HI, echo=ReasoningEcho(max_bytes=8), model=chat_model(**ON))
    assert one.trail is None


@pytest.mark.parametrize(("size", "is_kept"), [(2, True), (3, False), (0, False)])
def test_one_trace_has_at_most_an_eighth_of_the_bytes(size: int, is_kept: bool) -> None:
    echo = ReasoningEcho(max_bytes=16)
    echo.keep(b"k", "x" * size)
    assert (echo.find(b"k") is not None) is is_kept


def test_bytes_are_counted_not_characters() -> None:
    echo = ReasoningEcho(max_bytes=16)
    echo.keep(b"k", "é")
    echo.keep(b"l", "éé")
    assert (echo.find(b"k"), echo.find(b"l")) == ("é", None)


def test_nothing_is_kept_without_bytes() -> None:
    echo = ReasoningEcho(max_bytes=0)
    echo.keep(b"k", "x")
    assert echo.find(b"k") is None


def test_least_recently_used_goes_first() -> None:
    echo = ReasoningEcho(max_bytes=16, max_entries=2)
    echo.keep(b"a", "1")
    echo.keep(b"b", "2")
    assert echo.find(b"a") == "1"
    echo.keep(b"c", "3")
    assert [echo.find(key) for key in (b"a", b"b", b"c")] == ["1", None, "3"]


def test_keeping_the_same_again_takes_no_more_room() -> None:
    echo = ReasoningEcho(max_bytes=16)
    echo.keep(b"a", "1")
    for _ in range(40):
        echo.keep(b"b", "22")
    assert echo.find(b"a") == "1"


@given(
    st.lists(st.tuples(st.integers(0, 6), st.text(max_size=4)), max_size=40),
    st.integers(0, 64),
    st.integers(1, 4),
)
def test_bounds_hold_and_the_latest_is_found(
    steps: list[tuple[int, str]], max_bytes: int, max_entries: int
) -> None:
    echo = ReasoningEcho(max_bytes=max_bytes, max_entries=max_entries)
    for number, text in steps:
        echo.keep(bytes([number]), text)
        if 0 < len(text.encode()) <= max_bytes // 8:
            assert echo.find(bytes([number])) == text
        found = [echo.find(bytes([n])) for n in range(7)]
        kept = [text for text in found if text is not None]
        assert len(kept) <= max_entries
        assert sum(len(text.encode()) for text in kept) <= max_bytes


def test_key_depends_on_every_part_of_every_message() -> None:
    call = ToolCall(id="c", name="f", arguments="{}")
    messages = [
        Message(role="user", text="a"),
        Message(role="assistant", text="a"),
        Message(role="user", text="b"),
        Message(role="user", text="a", name="n"),
        Message(role="user", text="a", reasoning="r"),
        Message(role="user", text="a", calls=(call,)),
        Message(role="user", text="a", calls=(replace(call, arguments="{1}"),)),
        Message(role="user", text="a", call_id="c"),
    ]
    start = Trail.start(b"x")
    keys = {start.then(message).key("t") for message in messages}
    assert len(keys) == len(messages)
    assert Trail.start(b"x", b"y") != Trail.start(b"xy")
    assert len(start.key("t")) == 32
