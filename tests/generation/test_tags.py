"""What the prompt cache is told: dimensions of the key, and places in the prompt."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.cache import ANONYMOUS, NO_DIGEST, CacheTag, CacheUse
from mlxcel.core.request import GenerationRequest, Message, Tool, ToolChoice, ToolMode
from mlxcel.core.sampling import SamplingParams
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.options import ChatOptions
from mlxcel.generation.prepare import prepare
from mlxcel.link.messages import unpack_tokens
from mlxcel.text.template import ChatTemplate
from tests.generation.speaking import USER_HI, WEATHER, asked
from tests.settings import settings
from tests.text.merging import CHATML, merging_text

TIME = Tool(name="time", parameters={}, sent={"type": "function", "function": {"name": "time"}})
SYSTEM = Message(role="system", text="Be the cat.")


def chatml(source: str = CHATML, **options: Any) -> ChatModel:
    template = ChatTemplate(source, origin="test", special_tokens={})
    return ChatModel.of(merging_text(), template, ChatOptions(**{"caches": True} | options))


MODEL = chatml()


def submitted(
    request: GenerationRequest, model: ChatModel = MODEL
) -> tuple[list[int], CacheTag | None]:
    one = prepare(request, model=model, window=0, vocab_size=400, family="llama").submit
    return list(unpack_tokens(one.tokens)), one.cache


def tag(request: GenerationRequest | None = None, model: ChatModel = MODEL) -> CacheTag:
    found = submitted(asked() if request is None else request, model)[1]
    assert found is not None
    return found


def with_tools(*tools: Tool, choice: ToolChoice | None = None) -> GenerationRequest:
    prompt = {"tools": tools, "tool_choice": ToolChoice() if choice is None else choice}
    return asked(prompt=prompt)


def named(tool: Tool, **function: Any) -> Tool:
    return replace(tool, sent={"type": "function", "function": {"name": tool.name} | function})


def parts(found: CacheTag) -> dict[str, Any]:
    return {
        "session": found.session,
        "template": found.template,
        "tools": found.tools,
        "tool_choice": found.tool_choice,
    }


PLAIN = parts(tag())
TOOLED = parts(tag(with_tools(WEATHER, TIME)))
NAMED = ToolChoice(mode=ToolMode.NAMED, name="time")


@pytest.mark.parametrize(
    ("found", "base", "differs"),
    [
        pytest.param(tag(), PLAIN, set(), id="nothing"),
        pytest.param(
            tag(asked(cache=CacheUse(session="k"))), PLAIN, {"session"}, id="prompt-cache-key"
        ),
        pytest.param(
            tag(asked(prompt={"kwargs": {"style": "x"}})), PLAIN, {"template"}, id="kwargs"
        ),
        pytest.param(
            tag(asked(settings=settings(template_kwargs={"style": "x"}))),
            PLAIN,
            {"template"},
            id="kwargs-of-the-server",
        ),
        pytest.param(tag(model=chatml(CHATML + " ")), PLAIN, {"template"}, id="template-source"),
        pytest.param(
            tag(asked(USER_HI, Message(role="assistant", text="Once"))),
            PLAIN,
            {"template"},
            id="answer-begun",
        ),
        pytest.param(tag(with_tools(WEATHER)), PLAIN, {"tools", "tool_choice"}, id="a-tool"),
        pytest.param(tag(with_tools(TIME, WEATHER)), TOOLED, {"tools"}, id="order-of-tools"),
        pytest.param(
            tag(with_tools(named(WEATHER, description="d"), TIME)),
            TOOLED,
            {"tools"},
            id="described",
        ),
        pytest.param(
            tag(with_tools(replace(WEATHER, parameters={}), TIME)),
            TOOLED,
            {"tools"},
            id="parameters",
        ),
        pytest.param(
            tag(with_tools(named(WEATHER, strict=True), TIME)), TOOLED, set(), id="other-fields"
        ),
        pytest.param(
            tag(with_tools(WEATHER, TIME, choice=ToolChoice(mode=ToolMode.REQUIRED))),
            TOOLED,
            {"tool_choice"},
            id="tool-choice",
        ),
        pytest.param(
            tag(with_tools(WEATHER, TIME, choice=NAMED)), TOOLED, {"tool_choice"}, id="named-choice"
        ),
        pytest.param(
            tag(
                asked(
                    sampling=SamplingParams(temperature=1.5, seed=1),
                    max_tokens=7,
                    stop=("x",),
                    choices=3,
                )
            ),
            PLAIN,
            set(),
            id="sampling-is-no-part",
        ),
    ],
)
def test_what_makes_a_key_differ(found: CacheTag, base: dict[str, Any], differs: set[str]) -> None:
    assert {name for name, value in parts(found).items() if value != base[name]} == differs


@pytest.mark.parametrize("places", ["kwargs", "parameters"])
def test_order_of_keys_is_no_difference(places: str) -> None:
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}

    def request(value: dict[str, Any]) -> GenerationRequest:
        if places == "kwargs":
            return asked(prompt={"kwargs": value})
        return with_tools(replace(WEATHER, parameters=value))

    assert parts(tag(request(one))) == parts(tag(request(other)))


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        pytest.param(asked(), "__absent__", id="no-tools"),
        pytest.param(with_tools(WEATHER), "mode:auto", id="auto"),
        pytest.param(
            with_tools(WEATHER, choice=ToolChoice(mode=ToolMode.NONE)), "mode:none", id="none"
        ),
        pytest.param(with_tools(TIME, choice=NAMED), "specific:time", id="specific"),
    ],
)
def test_choice_of_tools_has_a_word(request_: GenerationRequest, word: str) -> None:
    assert tag(request_).tool_choice == word


def test_text_alone_has_no_digest_of_media_nor_of_tools() -> None:
    assert (tag().media, tag().tools) == (NO_DIGEST, NO_DIGEST)


@pytest.mark.parametrize(
    ("use", "session", "is_conversation"),
    [
        pytest.param(CacheUse(), ANONYMOUS, False, id="nobody"),
        pytest.param(CacheUse(session="eve"), "key:eve", False, id="named"),
        pytest.param(CacheUse(conversation="eve"), "conv:eve", True, id="conversation"),
        pytest.param(CacheUse(session="conv:eve"), "key:conv:eve", False, id="no-way-in"),
        pytest.param(
            CacheUse(session="bob", conversation="eve"), "conv:eve", True, id="conversation-wins"
        ),
    ],
)
def test_session(use: CacheUse, session: str, is_conversation: bool) -> None:
    found = tag(asked(cache=use))
    assert (found.session, found.is_conversation) == (session, is_conversation)


@pytest.mark.parametrize(
    ("use", "model"),
    [
        pytest.param(CacheUse(is_on=False), MODEL, id="cold-request"),
        pytest.param(CacheUse(), chatml(caches=False), id="server-off"),
        pytest.param(CacheUse(is_on=True), chatml(caches=False), id="true-does-not-override"),
    ],
)
def test_cold_prompt_has_no_tag_and_the_same_ids(use: CacheUse, model: ChatModel) -> None:
    ids, found = submitted(asked(cache=use), model)
    assert found is None
    assert ids == submitted(asked())[0]


WORDS = st.lists(
    st.sampled_from(["the", " cat", "naïve", "🎭", "\n", "  ", "<|im_end|>", "x", " "]), max_size=8
).map("".join)


@given(WORDS, WORDS, WORDS, st.booleans())
def test_next_turn_begins_with_all_up_to_the_boundary(
    question: str, answer: str, following: str, has_system: bool
) -> None:
    head = (SYSTEM,) if has_system else ()
    turns = (*head, Message(role="user", text=question))
    ids, found = submitted(asked(*turns))
    assert found is not None
    assert 0 < found.boundary < len(ids)
    said = (Message(role="assistant", text=answer), Message(role="user", text=following))
    assert submitted(asked(*turns, *said))[0][: found.boundary] == ids[: found.boundary]
    # Behind it is what asks for the answer, and nothing else.
    asking = merging_text().encode("<|im_start|>assistant\n")
    assert ids[found.boundary :] == asking


def test_boundary_of_an_answer_begun_is_before_the_answer() -> None:
    begun = submitted(asked(USER_HI, Message(role="assistant", text="Once")))[1]
    assert begun is not None
    assert begun.boundary == tag(asked(USER_HI)).boundary


def test_last_token_is_never_within_the_boundary() -> None:
    ids, found = submitted(asked(), chatml("{{ messages[0].content }} the cat"))
    assert found is not None
    assert found.boundary == len(ids) - 1


@pytest.mark.parametrize(
    ("messages", "counts"),
    [
        pytest.param((SYSTEM, USER_HI), True, id="system"),
        pytest.param((USER_HI,), False, id="none"),
        pytest.param((USER_HI, SYSTEM), False, id="later"),
    ],
)
def test_system_messages_are_counted_when_they_have_a_file(
    messages: tuple[Message, ...], counts: bool
) -> None:
    model = chatml(marks_system=True)
    ids, found = submitted(asked(*messages), model)
    alone = merging_text().encode("<|im_start|>system\nBe the cat.<|im_end|>\n")
    assert found is not None
    assert ids[: found.system] == (alone if counts else [])
    assert tag(asked(*messages)).system == 0


def test_system_messages_that_end_within_a_token_are_not_told_apart() -> None:
    glued = "{% for m in messages %}{{ m.content }}{% endfor %}"
    system, user = Message(role="system", text="cat th"), Message(role="user", text="e")
    assert tag(asked(system, user), chatml(glued, marks_system=True)).system == 0
