"""The grammar of an answer that has to be calls: a fixed wrapper around each tool's schema."""

import json
import logging
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Any

from llguidance import LLMatcher

from mlxcel.core.request import Tool, ToolChoice, ToolMode

log = logging.getLogger(__name__)

_FORM = {
    # The white space of Python's `json`, which chat templates show the model.
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    # No \uXXXX: a free name could be a second spelling of a property, with another type.
    "json_allowed_escapes": 'nrbtf\\"',
}


_BARE_NAME = re.compile(r"[^\s\[\]{}]+")


class Slot(Enum):
    NAME = "name"
    """As it is."""
    QUOTED_NAME = "quoted name"
    """As a JSON string."""
    ARGUMENTS = "arguments"


Piece = str | Slot
"""A text is a marker, or is written as it stands: no text holds a marker and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    call: tuple[Piece, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    separator: str | None = None
    """Between two calls; None: there is only one."""


class _Inexpressible(Exception):
    """Says what keeps the grammar from being written."""


def call_grammar(
    wrapper: Wrapper, tools: Sequence[Tool], choice: ToolChoice, specials: Container[str]
) -> str | None:
    """In llguidance's form; None, with a line in the log, when it cannot say one of the schemas."""
    is_named = choice.mode is ToolMode.NAMED
    wanted = [tool for tool in tools if not is_named or tool.name == choice.name]
    if not wanted:
        return None
    try:
        _check_texts(wrapper, wanted, specials)
        _check("".join(_rules(wrapper, wanted, is_single=is_named, specials=frozenset())))
        lark = "".join(_rules(wrapper, wanted, is_single=is_named, specials=specials))
    except _Inexpressible as error:
        log.info("a forced tool call is left to the instruction: %s", error)
        return None
    return LLMatcher.grammar_from_lark(lark)


def _rules(
    wrapper: Wrapper, tools: Sequence[Tool], *, is_single: bool, specials: Container[str]
) -> Iterator[str]:
    before, after = _terms(wrapper.before, specials), _terms(wrapper.after, specials)
    several = ""
    if not is_single and wrapper.separator is not None:
        several = f"({_terms((wrapper.separator,), specials)} call)*"
    yield f"start: {before} call {several} {after}\n"
    yield f"call: {' | '.join(f'call_{n}' for n in range(len(tools)))}\n"
    for n, tool in enumerate(tools):
        yield f"call_{n}: {_terms(_named(wrapper.call, tool), specials, f'arguments_{n}')}\n"
        # A root of its own for each schema: its `$ref`s stay as they are.
        yield f"arguments_{n}: %json {json.dumps(_schema(tool))}\n"


def _named(pieces: Sequence[Piece], tool: Tool) -> list[Piece]:
    if Slot.NAME in pieces and not _BARE_NAME.fullmatch(tool.name):
        raise _Inexpressible(f"the name {tool.name!r} cannot stand without quotes")
    quoted = json.dumps(tool.name, ensure_ascii=False)
    names: dict[Piece, Piece] = {Slot.NAME: tool.name, Slot.QUOTED_NAME: quoted}
    return [names.get(piece, piece) for piece in pieces]


def _terms(pieces: Iterable[Piece], specials: Container[str], arguments: str = "") -> str:
    """Pieces as Lark writes them; texts that follow each other are one literal."""
    terms, written = list[str](), [piece for piece in pieces if piece != ""]
    for is_text, group in groupby(written, lambda p: isinstance(p, str) and p not in specials):
        if is_text:
            terms.append(json.dumps("".join(map(str, group)), ensure_ascii=False))
        else:
            terms += (arguments if isinstance(p, Slot) else _special(p, specials) for p in group)
    return " ".join(terms)


def _special(marker: str, specials: Container[str]) -> str:
    """As a literal it would be a dead end: llguidance then offers the token and refuses it."""
    if isinstance(specials, Mapping):
        return f"<[{specials[marker]}]>"
    if marker.startswith("<") and marker.endswith(">"):
        return marker
    raise _Inexpressible(f"{marker} is a special token whose id is not known")


def _schema(tool: Tool) -> dict[str, Any]:
    """Of the arguments, which are an object."""
    types = tool.parameters.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        raise _Inexpressible(f"the arguments of {tool.name!r} are {types!r}, not an object")
    return {**tool.parameters, "type": "object", "x-guidance": _FORM}


def _check_texts(wrapper: Wrapper, tools: Sequence[Tool], specials: Container[str]) -> None:
    """A constant that holds the text of a special token is the same dead end."""
    pieces = (*wrapper.before, *wrapper.call, *wrapper.after)
    tokens = [piece for piece in pieces if isinstance(piece, str) and piece in specials]
    for tool in tools:
        text = json.dumps([tool.name, tool.parameters], ensure_ascii=False)
        if any(token in text for token in tokens):
            raise _Inexpressible(f"the schema of {tool.name!r} holds a marker of the markup")


@lru_cache(maxsize=64)
def _problem(lark: str) -> str:
    return LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(lark))


def _check(lark: str) -> None:
    """Without special tokens, since there is no tokenizer to know them."""
    if problem := _problem(lark):
        raise _Inexpressible(problem.partition("\n")[0])
