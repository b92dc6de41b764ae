"""A text to be said again with one word changed, for any vocabulary."""

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from bench_runs import Work

from mlxcel.weights.load import LoadedModel

TEXT = (
    "The harbour master keeps three books. In the first he writes which ships came in, in the "
    "second which ones left, and in the third what the weather was like on both occasions. When "
    "the captain of a fishing boat asks him whether the storm of last Tuesday had been foreseen, "
    "he opens the third book, reads for a while, and says that nobody had asked him on Monday. "
    "The boats that stayed in the harbour that day belong to people who look at the sky; the "
    "boats that went out belong to people who look at the books of other people. Both kinds pay "
    "the same fee for the place at the quay, and both kinds complain about it every winter, so "
    "the master keeps a fourth book at home, in which he writes down what they say. "
)
CHANGES = [("storm", "gale"), ("sky", "moon"), ("fee", "price"), ("winter", "spring")]
"""One a row, each somewhere else."""


def edits_of(rows: int, model: LoadedModel) -> Work:
    tokens = _tokens_of(model)
    texts, prompts = [], []
    for n in range(rows):
        old, new = CHANGES[n % len(CHANGES)]
        prompt = tokens(
            f"Replace the word {old} by {new} in this text and change nothing else. {TEXT}\n\n"
        )
        prompts.append(len(prompt))
        texts.append([*prompt, *tokens(TEXT.replace(old, new, 1))])
    return Work(texts=texts, prompts=prompts)


def _tokens_of(model: LoadedModel) -> Callable[[str], list[int]]:
    """Where weights are random every word is a token."""
    if model.tokenizer_file.exists():
        return _read(model.tokenizer_file)
    return lambda text: [2 + crc32(word.encode()) % (model.vocab_size - 2) for word in text.split()]


def _read(file: Path) -> Callable[[str], list[int]]:
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(file))
    return lambda text: list(words.encode(text, add_special_tokens=False).ids)
