"""Fill in the middle: markers and the order of the parts."""

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from mlxcel.core.errors import NotSupported
from mlxcel.text.infill import Gap, find_markers, infill_text
from mlxcel.text.vocabulary import Vocabulary

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
GAP = Gap(prefix="a = ", suffix="\nb", extra=(("util.py", "X = 1\n"), ("tmp", "y")))


def vocabulary(*words: str) -> Vocabulary:
    tokenizer = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words])
    return Vocabulary(tokenizer, None)


@pytest.mark.parametrize(
    ("words", "spm", "text"),
    [
        pytest.param(
            QWEN, False,
            "<|repo_name|>myproject\n<|file_sep|>util.py\nX = 1\n<|file_sep|>tmp\ny"
            "<|file_sep|>tmp\n<|fim_prefix|>a = <|fim_suffix|>\nb<|fim_middle|>", id="all-markers",
        ),
        pytest.param(
            QWEN, True,
            "<|repo_name|>myproject\n<|file_sep|>util.py\nX = 1\n<|file_sep|>tmp\ny"
            "<|file_sep|>tmp\n<|fim_suffix|>\nb<|fim_prefix|>a = <|fim_middle|>", id="suffix-first",
        ),
        pytest.param(
            ("<PRE>", "<SUF>", "<MID>"), False,
            "\n\n--- snippet ---\n\nX = 1\n\n\n--- snippet ---\n\ny<PRE>a = <SUF>\nb<MID>",
            id="no-files",
        ),
        pytest.param(
            ("[PREFIX]", "[SUFFIX]", "[MIDDLE]", "<file_sep>"), False,
            "<file_sep>util.py\nX = 1\n<file_sep>tmp\ny<file_sep>tmp\n"
            "[PREFIX]a = [SUFFIX]\nb[MIDDLE]", id="no-repository",
        ),
    ],
)  # fmt: skip
def test_parts_stand_in_their_order(words: tuple[str, ...], spm: bool, text: str) -> None:
    assert infill_text(GAP, vocabulary(*words), spm=spm) == text


def test_what_is_missing_is_named() -> None:
    some = vocabulary("<|fim_prefix|>", "<|fim_middle|>")
    assert find_markers(some).lacking == ("suffix",)
    with pytest.raises(NotSupported, match="no token for the suffix"):
        infill_text(GAP, some, spm=False)
    with pytest.raises(NotSupported, match="prefix, suffix, middle"):
        infill_text(GAP, vocabulary(), spm=False)
