"""The field `prompt` of /v1/completions: a text or a list of token ids, or an array of either."""

from collections.abc import Sequence
from typing import Any

from mlxcel.core.errors import BadField
from mlxcel.core.request import TextPrompt
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.openai.numbers import INT32_MAX

NAME = "prompt"
PROMPTS = 128
"""Each of them has its own place in the queue."""
FORMS = "a string, an array of strings, an array of token ids, or an array of such arrays"


def read_prompts(fields: Reader, *, echo: bool) -> tuple[TextPrompt, ...]:
    """Never empty. Whether ids are in the vocabulary is not known here. Raises BadField."""
    _, value = fields.pick(NAME)
    if value is None:
        raise fields.refuse(NAME, f"is required; it wants {FORMS}")
    if isinstance(value, str):
        return (_of_text(value, NAME, echo),)
    if not isinstance(value, list):
        raise fields.refuse(NAME, f"wants {FORMS}; got {json_type(value)} {shown(value)}")
    if not value:
        raise fields.refuse(NAME, "wants at least one prompt or token, got an empty array")
    if not isinstance(value[0], str | list):
        return (_of_ids(value, NAME, echo),)
    if len(value) > PROMPTS:
        raise fields.refuse(NAME, f"wants at most {PROMPTS} prompts, got {len(value)}")
    places = [(f"{NAME}[{place}]", entry) for place, entry in enumerate(value)]
    if isinstance(value[0], str):
        return tuple(_of_text(entry, place, echo) for place, entry in places)
    return tuple(_of_ids(entry, place, echo) for place, entry in places)


def _of_text(value: object, place: str, echo: bool) -> TextPrompt:
    """An empty one is continued from the very beginning; a blank one is a mistake."""
    if not isinstance(value, str):
        raise BadField(place, f"wants a string like the first, got {json_type(value)}")
    if value and not value.strip():
        raise BadField(place, f"wants text, or none at all; got only blanks: {shown(value)}")
    return TextPrompt(text=value, echo=echo, param=place)


def _of_ids(value: Any, place: str, echo: bool) -> TextPrompt:
    if not isinstance(value, list):
        rule = f"wants an array of token ids like the first, got {json_type(value)}"
        raise BadField(place, rule)
    if not value:
        raise BadField(place, "wants at least one token, got an empty array")
    _check_ids(value, place)
    return TextPrompt(tokens=tuple(value), echo=echo, param=place)


def _check_ids(ids: Sequence[object], place: str) -> None:
    for index, token in enumerate(ids):
        if type(token) is not int or not 0 <= token <= INT32_MAX:
            rule = f"wants a token id, an integer of at least 0; got {shown(token)}"
            raise BadField(f"{place}[{index}]", rule)
