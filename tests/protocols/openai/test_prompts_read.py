"""The field `prompt` of /v1/completions: what it may be, and what is said of what it may not."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.request import TextPrompt
from tests.protocols.openai.reading import completion_read


def texts(*entries: str) -> list[TextPrompt]:
    places = ["prompt"] if len(entries) == 1 else [f"prompt[{i}]" for i in range(len(entries))]
    return [TextPrompt(text=e, param=p) for e, p in zip(entries, places, strict=True)]


@pytest.mark.parametrize(
    ("sent", "prompts"),
    [
        pytest.param("a", texts("a"), id="text"),
        pytest.param("", texts(""), id="empty-text"),
        pytest.param(" a\n", texts(" a\n"), id="blanks-are-kept"),
        pytest.param(["a", "", "b"], texts("a", "", "b"), id="texts"),
        pytest.param(["a"], [TextPrompt(text="a", param="prompt[0]")], id="one-text-in-a-list"),
        pytest.param([5, 0], [TextPrompt(tokens=(5, 0), param="prompt")], id="ids"),
        pytest.param(
            [[5], [6, 7]],
            [
                TextPrompt(tokens=(5,), param="prompt[0]"),
                TextPrompt(tokens=(6, 7), param="prompt[1]"),
            ],
            id="lists-of-ids",
        ),
    ],
)
def test_forms_of_a_prompt(sent: Any, prompts: list[TextPrompt]) -> None:
    assert [request.prompt for request in completion_read(prompt=sent).requests] == prompts


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        pytest.param(None, "prompt: is required; it wants a string, an array", id="null"),
        pytest.param({}, "prompt: wants a string, an array of .*; got object {}", id="object"),
        pytest.param(7, "prompt: wants a string, .*; got integer 7", id="number"),
        pytest.param([], "prompt: wants at least one prompt or token", id="nothing-in-it"),
        pytest.param(" \n", r"prompt: wants text, .*only blanks", id="blank"),
        pytest.param(["a", "  "], r"prompt\[1\]: wants text", id="a-blank-one"),
        pytest.param(["a", 5], r"prompt\[1\]: wants a string like the first", id="text-and-id"),
        pytest.param([5, "a"], r'prompt\[1\]: wants a token id, .*; got "a"', id="id-and-text"),
        pytest.param([None], r"prompt\[0\]: wants a token id, .*; got null", id="null-in-a-list"),
        pytest.param([True], r"prompt\[0\]: wants a token id, .*; got true", id="boolean"),
        pytest.param([1.0], r"prompt\[0\]: wants a token id, .*; got 1.0", id="float"),
        pytest.param([-1], r"prompt\[0\]: wants a token id, .*; got -1", id="negative"),
        pytest.param([2**31], r"prompt\[0\]: wants a token id", id="beyond-any-vocabulary"),
        pytest.param([[5], []], r"prompt\[1\]: wants at least one token", id="empty-ids"),
        pytest.param([[5], "a"], r"prompt\[1\]: wants an array of token ids", id="ids-and-text"),
        pytest.param([[5], [[6]]], r"prompt\[1\]\[0\]: wants a token id", id="too-deep"),
        pytest.param(["a"] * 129, "prompt: wants at most 128 prompts, got 129", id="too-many"),
    ],
)
def test_what_is_no_prompt_is_told_where(sent: Any, message: str) -> None:
    with pytest.raises(BadField, match=f"^{message}") as caught:
        completion_read(prompt=sent)
    assert caught.value.param == caught.value.message.split(":")[0]


def test_as_many_prompts_as_allowed() -> None:
    assert len(completion_read(prompt=["a"] * 128).requests) == 128


def test_a_list_of_many_ids_is_one_prompt() -> None:
    assert len(completion_read(prompt=list(range(5000))).requests) == 1
