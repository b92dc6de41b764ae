"""The text side of a model: its tokenizer, what ends an answer, its own chat template.

Read from the files of a checkpoint folder; needs no weights, no mlx and no transformers.
"""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from mlxcel.core.byte_vocab import TURN_ENDS
from mlxcel.core.errors import StartupError
from mlxcel.text.bytes import BYTE_TEMPLATE, byte_tokenizer
from mlxcel.text.detokenize import ByteDetokenizer, Detokenizer, WindowDetokenizer
from mlxcel.text.longest import Bound, bound_of
from mlxcel.text.pieces import pieces_of
from mlxcel.text.tools.specials import special_words
from mlxcel.text.vocabulary import Vocabulary

log = logging.getLogger(__name__)
# Batches are of one text here, and threads of the library's own trouble a process that forks.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

Json = Mapping[str, Any]


class TextModel:
    """Immutable; `encode` may be called from several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        eos_ids: Iterable[int],
        special_tokens: Mapping[str, str],
        chat_template: str | None,
        placeholder_ids: Iterable[int] = (),
    ) -> None:
        # Some tokenizer.json files cut or fill every text to the length of a training batch.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._pieces = pieces_of(tokenizer)
        self.vocabulary = Vocabulary(tokenizer, self._pieces)
        self.eos_ids = tuple(sorted(set(eos_ids)))
        """Any of them ends an answer."""
        self.placeholder_ids = tuple(sorted(set(placeholder_ids)))
        """They stand for images, audio or video in a prompt."""
        self.special_tokens = special_tokens
        """By their names in templates: `bos_token`, `eos_token`, ..."""
        self.chat_template = chat_template
        """Jinja source of the checkpoint's own template."""

    def encode(self, text: str) -> list[int]:
        """Without what the tokenizer puts around a text, such as BOS: templates write that."""
        return _ids(self._tokenizer, text)

    def encode_whole(self, text: str) -> list[int]:
        """With what the tokenizer puts before a text, such as BOS. An empty text is BOS alone,
        where there is one."""
        encoding = _encoding(self._tokenizer, text, adds_special=True)
        ids: list[int] = encoding.ids
        if not text:
            bos = self.vocabulary.id_of(self.special_tokens.get("bos_token", ""))
            return [] if bos is None else [bos]
        own = encoding.special_tokens_mask
        while ids and own[len(ids) - 1]:
            ids.pop()  # what ends a text: the answer goes on with it
        return ids

    def encode_around(self, text: str) -> list[int]:
        """With all that the tokenizer puts around a text, at its end as well."""
        return _ids(self._tokenizer, text, adds_special=True)

    def encode_plain(self, text: str, *, adds_special: bool) -> list[int]:
        """The words of special tokens are text like any other. `adds_special`: with what the
        tokenizer puts around a text."""
        return _ids(self._plain, text, adds_special=adds_special)

    @cached_property
    def _plain(self) -> Tokenizer:
        # A setting of the tokenizer as a whole, which others encode with at this moment.
        plain = Tokenizer.from_str(self._tokenizer.to_str())
        plain.encode_special_tokens = True
        return plain

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens by their names; U+FFFD for broken bytes."""
        texts: list[str] = self._tokenizer.decode_batch([list(ids)], skip_special_tokens=False)
        return texts[0]

    def encode_marked(self, text: str, *places: int) -> tuple[list[int], list[int]]:
        """What `encode` gives, and for each place, counted in characters, how many of the tokens
        end at or before it."""
        encoding = _encoding(self._tokenizer, text)
        return encoding.ids, [_tokens_before(encoding, place, len(text)) for place in places]

    def least_tokens(self, text: str) -> int:
        """What `encode` finds at least, without encoding; 0: that cannot be told."""
        return 0 if self._bound is None else self._bound.least_tokens(text)

    @cached_property
    def _bound(self) -> Bound | None:
        return bound_of(self._tokenizer, self._pieces)

    def grammar_words(self, words: Iterable[str]) -> dict[str, int]:
        """Those of the words that a grammar has to name as tokens, with their ids."""
        return special_words(self._tokenizer, words)

    def detokenizer(
        self, *, at_start: bool = True, visible: Mapping[int, str] | None = None
    ) -> Detokenizer:
        """`at_start` is false when the answer continues a text that is already there; `visible`
        are special tokens that are shown, and how."""
        if self._pieces is None:
            return WindowDetokenizer(self._tokenizer, visible=visible or {})
        return ByteDetokenizer(self._pieces, at_start=at_start, visible=visible or {})


# As batches of one text: only those let other threads run meanwhile, and a long text takes seconds
# (tokenizers 0.23).


def _encoding(tokenizer: Tokenizer, text: str, *, adds_special: bool = False) -> Encoding:
    return tokenizer.encode_batch([text], add_special_tokens=adds_special)[0]


def _ids(tokenizer: Tokenizer, text: str, *, adds_special: bool = False) -> list[int]:
    """Without the places of the tokens in the text, which take as long again."""
    ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=adds_special)[0].ids
    return ids


def _tokens_before(encoding: Encoding, place: int, end: int) -> int:
    if place >= end:
        return len(encoding.ids)
    token: int | None = encoding.char_to_token(place)
    if token is not None:
        return token
    # A character of no token: a space that the tokenizer counts out of the word behind it.
    later = (n for n, (start, _) in enumerate(encoding.offsets) if start >= place)
    return next(later, len(encoding.ids))


def byte_text_model() -> TextModel:
    """The vocabulary of model=echo."""
    return TextModel(
        byte_tokenizer(),
        eos_ids=TURN_ENDS,
        special_tokens={"bos_token": "<|bos|>", "eos_token": "<|eos|>"},
        chat_template=BYTE_TEMPLATE,
    )


def read_text_model(folder: Path) -> TextModel:
    """Raises StartupError naming the file that is missing or broken."""
    tokenizer = _read_tokenizer(folder / "tokenizer.json")
    config = _read_json(folder / "tokenizer_config.json")
    special = _special_tokens(_read_json(folder / "special_tokens_map.json") | config)
    eos_ids = _eos_ids(folder, tokenizer.token_to_id(special.get("eos_token", "")))
    if not eos_ids:
        log.warning("%s names no end-of-text token: answers end at max_tokens only", folder)
    return TextModel(
        tokenizer,
        eos_ids=eos_ids,
        special_tokens=special,
        chat_template=_chat_template(folder, config),
        placeholder_ids=_placeholder_ids(folder),
    )


def _read_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise StartupError(
            f"{path} is missing: the tokenizer is read from tokenizer.json; "
            "convert the checkpoint with a current mlx_lm.convert, which writes one"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # what tokenizers raises has no narrower class
        raise StartupError(f"{path} cannot be used as a tokenizer: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    """Empty when there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_text(path))
    except ValueError as error:
        raise StartupError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise StartupError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"{path} cannot be read as UTF-8 text: {error}") from error


def _special_tokens(config: Json) -> dict[str, str]:
    """Every `*_token` that is set; a token is a string or an object with `content`."""
    found = {}
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            found[key] = text
    return found


def _eos_ids(folder: Path, tokenizer_eos: int | None) -> set[int]:
    """Those of the first file that states some, and the tokenizer's own."""
    own = set() if tokenizer_eos is None else {tokenizer_eos}
    for place, source in _eos_sources(folder):
        stated = source.get("eos_token_id")
        if stated is not None:
            return own | set(_token_ids(place, stated))
    return own


def _eos_sources(folder: Path) -> Iterator[tuple[str, Json]]:
    path = folder / "generation_config.json"
    yield f"{path}: eos_token_id", _read_json(path)
    path = folder / "config.json"
    config = _read_json(path)
    yield f"{path}: eos_token_id", config
    text = config.get("text_config")
    if isinstance(text, dict):
        yield f"{path}: text_config.eos_token_id", text


def _placeholder_ids(folder: Path) -> list[int]:
    """Checkpoints call them `image_token_id` or, the older ones, `image_token_index`."""
    config = _read_json(folder / "config.json")
    return [
        token
        for kind in ("image", "video", "audio")
        for form in ("id", "index")
        if type(token := config.get(f"{kind}_token_{form}")) is int
    ]


def _token_ids(place: str, value: object) -> list[int]:
    ids: list[Any] = value if isinstance(value, list) else [value]
    if not all(type(token) is int for token in ids):
        raise StartupError(f"{place} must be an integer or a list of integers, not {value!r:.60}")
    return ids


def _chat_template(folder: Path, config: Json) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return _text(path)
    template = config.get("chat_template")
    if isinstance(template, list):
        template = _default_template(template)
    if template is None or isinstance(template, str):
        return template
    raise StartupError(
        f"{folder / 'tokenizer_config.json'}: chat_template must be a string or a list of "
        f'{{"name": ..., "template": ...}}, not {config["chat_template"]!r:.60}'
    )


def _default_template(rows: list[Any]) -> object:
    """Of several named ones; the list itself when it is none of those."""
    if not all(isinstance(row, dict) and {"name", "template"} <= row.keys() for row in rows):
        return rows
    return next((row["template"] for row in rows if row["name"] == "default"), None)
