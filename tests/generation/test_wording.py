"""Prompts that no template has made: texts and tokens as they stand."""

from dataclasses import replace

import pytest

from mlxcel.core.byte_vocab import BOS
from mlxcel.core.cache import CacheUse
from mlxcel.core.errors import BadField, BadRequest, ContextLengthExceeded, NotSupported
from mlxcel.core.request import GenerationRequest, InfillPrompt, Prompt, TextPrompt
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.options import ChatOptions
from mlxcel.generation.wording import Worded, word
from mlxcel.text.tokenizer import byte_text_model
from tests.generation.scripted import request

MODEL = ChatModel.of(byte_text_model(), None, ChatOptions(caches=True))


def asked(prompt: Prompt, **fields: object) -> GenerationRequest:
    return replace(request(), prompt=prompt, **fields)  # type: ignore[arg-type]


def worded(prompt: Prompt, window: int = 0, **fields: object) -> Worded:
    return word(asked(prompt, **fields), MODEL, window=window)


def test_a_text_begins_with_what_the_tokenizer_begins_texts_with() -> None:
    assert worded(TextPrompt(text="ab")).ids == [BOS, *b"ab"]
    assert worded(TextPrompt(text="")).ids == [BOS]


def test_tokens_are_read_as_they_are() -> None:
    done = worded(TextPrompt(tokens=(98, 97), echo=True))
    assert (done.ids, done.echoed) == ([98, 97], "ba")
    with pytest.raises(BadRequest, match="the prompt is empty"):
        worded(TextPrompt(tokens=()))
    with pytest.raises(BadField, match="token ids from 0 to 262, got 264"):
        worded(TextPrompt(tokens=(1, 264)))


def test_only_an_echo_is_told_again() -> None:
    assert worded(TextPrompt(text="ab")).echoed == ""
    assert worded(TextPrompt(text="ab", echo=True)).echoed == "ab"


@pytest.mark.parametrize("text", ["a" * 7, "a" * 500])
def test_a_prompt_that_fills_the_window_is_refused_in_the_name_of_its_field(text: str) -> None:
    assert len(worded(TextPrompt(text="a" * 6), window=8).ids) == 7
    with pytest.raises(ContextLengthExceeded, match="shorten the prompt") as error:
        worded(TextPrompt(text=text), window=8)
    assert error.value.param == "prompt"


def test_texts_share_what_was_read_with_texts_of_their_session_alone() -> None:
    mine = worded(TextPrompt(text="ab")).tag
    assert mine is not None
    assert worded(TextPrompt(tokens=(1, 2))).tag == mine
    assert worded(TextPrompt(text="ab"), scores_prompt=True).tag is None
    assert worded(TextPrompt(text="ab"), cache=CacheUse(session="bob")).tag != mine
    assert worded(TextPrompt(text="ab"), cache=CacheUse(is_on=False)).tag is None


def test_a_vocabulary_without_markers_cannot_infill() -> None:
    with pytest.raises(NotSupported, match="cannot fill in the middle"):
        worded(InfillPrompt(prefix="a", suffix="b"))
