from dataclasses import replace

import pytest

from mlxcel.core.byte_vocab import END, EOS, USER
from mlxcel.core.errors import BadRequest, ContextLengthExceeded
from mlxcel.core.request import ChatPrompt, Dry, GenerationRequest, Message, SamplingParams
from mlxcel.generation.prepare import Prepared, prepare
from mlxcel.link.messages import unpack_tokens
from mlxcel.text.template import ChatTemplate
from mlxcel.text.tokenizer import byte_text_model
from tests.settings import settings

TEXT = byte_text_model()
TURN = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"


def request(
    *messages: Message, max_tokens: int = 100, kwargs: dict[str, object] | None = None
) -> GenerationRequest:
    return GenerationRequest(
        id="r1",
        prompt=ChatPrompt(messages=messages, kwargs=kwargs or {}),
        settings=settings(template_kwargs={"tone": "server", "depth": "server"}),
        sampling=SamplingParams(temperature=0.5, seed=9),
        max_tokens=max_tokens,
        received_s=0.0,
    )


def prepared(
    *messages: Message,
    source: str = TURN,
    window: int = 0,
    max_tokens: int = 100,
    kwargs: dict[str, object] | None = None,
) -> Prepared:
    template = ChatTemplate(source, origin="test", special_tokens={"bos_token": "<|bos|>"})
    asked = request(*messages, max_tokens=max_tokens, kwargs=kwargs)
    return prepare(asked, text=TEXT, template=template, window=window, vocab_size=264)


def ids_of(one: Prepared) -> list[int]:
    ids = list(unpack_tokens(one.submit.tokens))
    assert len(ids) == one.prompt_tokens
    return ids


USER_HI = Message(role="user", text="hi")


def test_submit_carries_ids_sampling_and_ends() -> None:
    one = prepared(USER_HI)
    assert ids_of(one) == [USER, 104, 105, END]
    assert one.submit.id == "r1"
    assert one.submit.sampling == SamplingParams(temperature=0.5, seed=9)
    assert one.submit.eos_ids == (EOS, END)


def test_submit_carries_the_token_ids_of_breaking_texts() -> None:
    dry = Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64)
    asked = replace(request(USER_HI), sampling=SamplingParams(dry=dry), dry_breakers=("\n", ":"))
    template = ChatTemplate(TURN, origin="test", special_tokens={})
    one = prepare(asked, text=TEXT, template=template, window=0, vocab_size=264)
    assert one.submit.sampling.dry is not None
    assert one.submit.sampling.dry.breakers == (10, 58)


def test_bos_of_the_template_is_the_only_one() -> None:
    bos = TEXT.encode("<|bos|>")[0]
    assert ids_of(prepared(USER_HI, source="{{ bos_token }}" + TURN)).count(bos) == 1


def test_request_kwargs_win_over_the_servers_key_by_key() -> None:
    one = prepared(USER_HI, source="{{ tone }} {{ depth }}", kwargs={"tone": "mine"})
    assert bytes(ids_of(one)) == b"mine server"


@pytest.mark.parametrize("window", [0, 5, 1000], ids=["unbounded", "room-for-one", "fits"])
def test_prompt_that_fits_is_sent_with_the_limit_as_asked(window: int) -> None:
    assert prepared(USER_HI, window=window, max_tokens=100).submit.max_tokens == 100


@pytest.mark.parametrize("window", [4, 3])
def test_prompt_that_leaves_no_room_is_refused_with_both_numbers(window: int) -> None:
    with pytest.raises(ContextLengthExceeded, match=rf"4 tokens.* {window} tokens"):
        prepared(USER_HI, window=window)


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(BadRequest, match="empty"):
        prepared()


def test_model_without_template_is_refused_with_the_key_to_set() -> None:
    with pytest.raises(BadRequest, match=r"generation\.chat_template\.file"):
        prepare(request(USER_HI), text=TEXT, template=None, window=0, vocab_size=264)


@pytest.mark.parametrize(
    ("last", "continues"),
    [
        pytest.param(Message(role="assistant", text="Once"), True, id="begun"),
        pytest.param(USER_HI, False, id="user"),
    ],
)
def test_begun_answer_is_known_as_a_continuation(last: Message, continues: bool) -> None:
    assert prepared(USER_HI, last).continues is continues
