from dataclasses import replace
from math import inf
from typing import Any

import pytest

from mlxcel.core.byte_vocab import END, EOS, USER
from mlxcel.core.errors import BadField, BadRequest, ContextLengthExceeded
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.request import Lane, Message
from mlxcel.core.sampling import Dry, SamplingParams
from mlxcel.core.settings import LanguageBias
from mlxcel.core.steering import LoopGuard, Thinking
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.prepare import Prepared, prepare
from mlxcel.link.messages import pack_bias, unpack_tokens
from mlxcel.text.bytes import byte_tokenizer
from mlxcel.text.tokenizer import TextModel
from tests.generation.speaking import THINKS, TURNS, USER_HI, asked, chat_model
from tests.settings import settings
from tests.text.thinkers import THINK, UNTHINK

PLAIN = chat_model()
BEGUN = Message(role="assistant", text="Once")


def prepared(
    *messages: Message,
    model: ChatModel = PLAIN,
    window: int = 0,
    vocab_size: int = 264,
    **changes: Any,
) -> Prepared:
    request = asked(*messages, **changes)
    return prepare(request, model=model, window=window, vocab_size=vocab_size, family="llama")


def ids_of(one: Prepared) -> list[int]:
    ids = list(unpack_tokens(one.submit.tokens))
    assert len(ids) == one.prompt_tokens
    return ids


def test_submit_carries_ids_sampling_and_ends() -> None:
    one = prepared(USER_HI)
    assert ids_of(one) == [USER, 104, 105, END]
    assert one.submit.id == "r1"
    assert one.submit.sampling == SamplingParams(temperature=0.5, seed=9)
    assert one.submit.eos_ids == (EOS, END)


def test_submit_carries_what_the_worker_does_as_asked() -> None:
    one = prepared(
        choices=3,
        lane=Lane.HIGH,
        top_logprobs=2,
        ignore_eos=True,
        loop=LoopGuard(shortest=1, longest=5, count=3),
        lora=((0, 0.5),),
    ).submit
    assert (one.choices, one.lane, one.top_logprobs, one.ignore_eos) == (3, Lane.HIGH, 2, True)
    assert (one.loop, one.lora) == (LoopGuard(shortest=1, longest=5, count=3), ((0, 0.5),))
    assert (one.thinking, one.constraint) == (None, None)


def test_submit_carries_the_token_ids_of_breaking_texts() -> None:
    dry = Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64)
    one = prepared(sampling=SamplingParams(dry=dry), dry_breakers=("\n", ":"))
    assert one.submit.sampling.dry is not None
    assert one.submit.sampling.dry.breakers == (10, 58)


def test_bos_of_the_template_is_the_only_one() -> None:
    one = prepared(model=chat_model("{{ bos_token }}" + TURNS))
    assert ids_of(one).count(PLAIN.text.encode("<|bos|>")[0]) == 1


@pytest.mark.parametrize("window", [0, 5, 1000], ids=["unbounded", "room-for-one", "fits"])
def test_prompt_that_fits_is_sent_with_the_limit_as_asked(window: int) -> None:
    assert prepared(window=window).submit.max_tokens == 100


@pytest.mark.parametrize("window", [4, 3])
def test_prompt_that_leaves_no_room_is_refused_with_both_numbers(window: int) -> None:
    with pytest.raises(ContextLengthExceeded, match=rf"4 tokens.* {window} tokens"):
        prepared(window=window)


@pytest.mark.parametrize(
    ("chars", "count"),
    [
        # The longest token has 13 bytes, and 15 of the prompt are two tokens of the template.
        pytest.param(13 * 20 - 14, "at least 21", id="not-encoded"),
        pytest.param(13 * 20 - 15, "247", id="counted"),
    ],
)
def test_prompt_that_cannot_fit_is_refused_without_encoding_it(chars: int, count: str) -> None:
    with pytest.raises(ContextLengthExceeded, match=rf"has {count} tokens.* 20 tokens"):
        prepared(Message(role="user", text="a" * chars), window=20)


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(BadRequest, match="empty"):
        prepared(model=chat_model(""))


def test_model_without_template_is_refused_with_the_key_to_set() -> None:
    with pytest.raises(BadRequest, match=r"generation\.chat_template\.file"):
        prepared(model=replace(PLAIN, template=None))


@pytest.mark.parametrize(
    ("last", "continues"),
    [pytest.param(BEGUN, True, id="begun"), pytest.param(USER_HI, False, id="user")],
)
def test_begun_answer_is_known_as_a_continuation(last: Message, continues: bool) -> None:
    assert prepared(USER_HI, last).continues is continues


@pytest.mark.parametrize(
    ("echo", "prefills", "echoed"),
    [
        pytest.param(True, True, "Once", id="asked"),
        pytest.param(False, True, "", id="not-asked"),
        pytest.param(True, False, "", id="no-prefill"),
    ],
)
def test_begun_text_is_echoed_when_asked(echo: bool, prefills: bool, echoed: str) -> None:
    one = prepared(USER_HI, BEGUN, model=chat_model(prefills=prefills), prompt={"echo": echo})
    assert one.echoed == echoed


def test_a_thought_begun_is_not_echoed() -> None:
    last = Message(role="assistant", text="Yes", reasoning="I wonder")
    model = chat_model(TURNS + "<think>", THINKS)
    one = prepared(USER_HI, last, model=model, prompt={"echo": True})
    assert ids_of(one)[4:] == [THINK, *b"I wonder", UNTHINK, *b"Yes"]
    assert (one.echoed, one.is_open) == ("Yes", False)


@pytest.mark.parametrize(
    ("source", "is_open"),
    [
        pytest.param("<think>\n", True, id="primed"),
        pytest.param("<think>\n</think>\n", False, id="closed"),
        pytest.param("", False, id="free"),
    ],
)
def test_answer_to_a_primed_prompt_begins_inside_the_block(source: str, is_open: bool) -> None:
    assert prepared(model=chat_model(TURNS + source, THINKS)).is_open is is_open


def test_budget_of_the_request_goes_to_the_worker_with_the_markers() -> None:
    model = chat_model(TURNS + "<think>\n", THINKS, budget_message="So")
    assert prepared(model=model, thinking_budget=3).submit.thinking == Thinking(
        open_ids=(THINK,), close_ids=(UNTHINK,), message_ids=(83, 111), budget=3, is_open=True
    )


@pytest.mark.parametrize(
    ("request_budget", "server_budget", "is_ignored"),
    [(3, -1, True), (0, -1, True), (None, 5, True), (-1, 5, False), (None, -1, False)],
)
def test_budget_is_ignored_by_a_model_without_markers(
    request_budget: int | None, server_budget: int, is_ignored: bool
) -> None:
    live = settings(reasoning_budget=server_budget)
    one = prepared(thinking_budget=request_budget, settings=live)
    assert one.ignores_budget is is_ignored
    assert one.submit.thinking is None
    thinker = prepared(model=chat_model(words=THINKS), thinking_budget=request_budget)
    assert not thinker.ignores_budget


def test_language_of_the_settings_becomes_a_bias_on_tokens_of_the_model() -> None:
    english = settings(language=LanguageBias(bias=(("en", -2.0),)))
    letters = [(token, -2.0) for token in sorted(b"ABC")]
    one = prepared(settings=english, vocab_size=ord("C") + 1)
    assert one.submit.sampling.wide_bias == pack_bias(letters)
    assert prepared().submit.sampling.wide_bias == b""


def test_form_that_cannot_be_enforced_is_refused_naming_the_field() -> None:
    broken = OutputFormat(kind=OutputKind.LARK, source="start: nothing_like_it", param="grammar")
    with pytest.raises(BadField, match="grammar"):
        prepared(output=broken)


def test_ends_are_banned_where_they_are_ignored_and_placeholders_always() -> None:
    text = PLAIN.text
    seeing = replace(PLAIN, text=TextModel(
        byte_tokenizer(), eos_ids=text.eos_ids, special_tokens={}, chat_template=None,
        placeholder_ids=(250, 9999),
    ))  # fmt: skip
    plain = prepared(model=seeing).submit.sampling
    assert plain.bias == ((250, -inf),)
    ignoring = prepared(model=seeing, ignore_eos=True).submit.sampling
    assert set(ignoring.bias) == {(250, -inf), (EOS, -inf), (END, -inf)}
    assert prepared(ignore_eos=True, vocab_size=EOS).submit.sampling.bias == tuple(
        (token, -inf) for token in text.eos_ids if token < EOS
    )
