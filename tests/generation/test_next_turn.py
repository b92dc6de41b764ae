"""How the next prompt will begin, and when that is worth reading before it comes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.answer import Choice
from mlxcel.core.cache import CacheUse
from mlxcel.core.events import FinishReason
from mlxcel.core.request import GenerationRequest, Message, ToolCall
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.next_turn import warm_for
from mlxcel.generation.options import ChatOptions
from mlxcel.generation.prepare import prepare
from mlxcel.generation.reecho import ReasoningEcho
from mlxcel.link.messages import Warm, unpack_tokens
from mlxcel.text.template import ChatTemplate
from tests.generation.speaking import USER_HI, WEATHER, asked
from tests.text.merging import CHATML, merging_text

TEXT = merging_text()
TURN = "<|im_start|>{{ m.role }}\n"
CALLS = (
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} "
    "{{ c.function.arguments | tojson }}</tool_call>{% endfor %}"
)
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
FORGETTING = (
    "{# tools #}{% for m in messages %}" + TURN + "{{ m.content }}" + CALLS + "<|im_end|>\n"
    "{% endfor %}" + ASK
)
"""Thoughts of earlier turns are left out."""
REMEMBERING = FORGETTING.replace(
    "{{ m.content }}",
    "{% if m.reasoning %}<think>\n{{ m.reasoning }}</think>{% endif %}{{ m.content }}",
)
ANSWER = Choice(reason=FinishReason.EOS, text="the cat", reasoning="I wonder")
SAID = TEXT.encode("I wonder</think>the cat")
CALL = ToolCall(id="c1", name="weather", arguments='{"city":   "Oslo"}')


def model(source: str = FORGETTING) -> ChatModel:
    template = ChatTemplate(source, origin="test", special_tokens={})
    return ChatModel.of(TEXT, template, ChatOptions(caches=True, echo_bytes=1024))


def ids(request: GenerationRequest, source: str, echo: ReasoningEcho) -> list[int]:
    one = prepare(request, model=model(source), window=0, vocab_size=400, family="x", echo=echo)
    return list(unpack_tokens(one.submit.tokens))


def warm(
    request: GenerationRequest,
    answer: Choice = ANSWER,
    said: list[int] = SAID,
    *,
    source: str = FORGETTING,
    window: int = 0,
) -> Warm | None:
    echo = ReasoningEcho(max_bytes=1024)
    prepared = prepare(
        request, model=model(source), window=0, vocab_size=400, family="x", echo=echo
    )
    return warm_for(prepared, answer, said, model=model(source), window=window)


def beginning(message: Warm | None) -> str:
    assert message is not None
    found = unpack_tokens(message.tokens)
    assert message.tag.boundary == len(found)
    return b"".join(TEXT.vocabulary.bytes_of(token) for token in found).decode()


def test_thoughts_that_will_be_left_out_are_left_out() -> None:
    assert beginning(warm(asked(USER_HI))) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nthe cat<|im_end|>\n<|im_start|>"
    )


def test_calls_are_written_as_the_template_writes_them() -> None:
    request = asked(USER_HI, prompt={"tools": (WEATHER,)})
    answer = replace(ANSWER, text="", reasoning="", calls=(CALL,))
    said = TEXT.encode('</think><tool_call>weather {"city":   "Oslo"}</tool_call>')
    assert beginning(warm(request, answer, said)).endswith(
        '<|im_start|>assistant\n<tool_call>weather {"city": "Oslo"}</tool_call><|im_end|>\n'
        "<|im_start|>"
    )


def test_thoughts_that_are_kept_need_no_second_reading() -> None:
    assert warm(asked(USER_HI), source=REMEMBERING) is None


def test_plain_answer_that_is_rendered_as_it_was_said_needs_none() -> None:
    plain = replace(ANSWER, reasoning="")
    assert warm(asked(USER_HI), plain, TEXT.encode("the cat"), source=CHATML) is None


@pytest.mark.parametrize("sends", [True, False])
def test_thoughts_before_calls_are_those_a_client_sends(sends: bool) -> None:
    earlier = Message(role="assistant", text="x", reasoning="r" if sends else "")
    request = asked(USER_HI, earlier, USER_HI, prompt={"tools": (WEATHER,)})
    answer = replace(ANSWER, text="", calls=(CALL,))
    said = TEXT.encode("something else")
    assert ("I wonder" in beginning(warm(request, answer, said, source=REMEMBERING))) is sends


@pytest.mark.parametrize(
    ("request_", "how"),
    [
        pytest.param(asked(USER_HI, cache=CacheUse(is_on=False)), {}, id="cold"),
        pytest.param(asked(USER_HI, Message(role="assistant", text="On")), {}, id="answer-begun"),
        pytest.param(asked(USER_HI), {"window": 10}, id="longer-than-a-slot"),
        pytest.param(
            asked(USER_HI),
            {
                "source": "{% if messages | length > 2 %}{{ raise_exception('no') }}{% endif %}"
                + FORGETTING
            },
            id="template-refuses-it",
        ),
        pytest.param(asked(USER_HI), {"source": "{{ messages[-1].content }}"}, id="no-beginning"),
    ],
)
def test_nothing_is_read_where_it_would_be_of_no_use(
    request_: GenerationRequest, how: dict[str, Any]
) -> None:
    assert warm(request_, **how) is None


WORDS = st.lists(
    st.sampled_from(["the", " cat", "naïve", "🎭", "\n", "  ", "x", " "]), min_size=1, max_size=8
).map("".join)


@pytest.mark.slow
@given(WORDS, WORDS, WORDS, st.sampled_from([FORGETTING, REMEMBERING]))
def test_next_prompt_begins_with_it_whatever_the_client_says(
    question: str, answer: str, following: str, source: str
) -> None:
    asking = Message(role="user", text=question)
    said = replace(ANSWER, text=answer)
    found = warm(asked(asking), said, TEXT.encode("another way"), source=source)
    assert found is not None
    known = unpack_tokens(found.tokens)
    echo = ReasoningEcho(max_bytes=1024)
    trail = prepare(
        asked(asking), model=model(source), window=0, vocab_size=400, family="x", echo=echo
    ).trail
    assert trail is not None
    echo.keep(trail.key(answer), said.reasoning)
    told = (Message(role="assistant", text=answer), Message(role="user", text=following))
    whole = ids(asked(asking, *told), source, echo)
    assert tuple(whole[: len(known)]) == known
    # No less than all of the answer is known.
    rest = b"".join(TEXT.vocabulary.bytes_of(token) for token in whole[len(known) :])
    assert rest.decode() == f"user\n{following}<|im_end|>\n<|im_start|>assistant\n<think>\n"
