"""The form an answer was asked to have, as a grammar for the constraint engine (llguidance).

Everything that can be found wrong is found here, before a request is queued. What the engine
says of a grammar goes to the log; the client reads which keyword broke which rule.
"""

import json
import logging
import time
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from mlxcel.core.byte_vocab import EOS, VOCAB_SIZE
from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.generation.gbnf import UNFORCED, GbnfError, gbnf_to_lark
from mlxcel.generation.json_schema import Lowering, Schema, escaped
from mlxcel.generation.schema_checks import SchemaRefused
from mlxcel.generation.schema_graph import check_progress, target, without_endless
from mlxcel.text.bytes import byte_tokenizer

log = logging.getLogger(__name__)

MAX_SCHEMA_BYTES = 65_536
MAX_GRAMMAR_BYTES = 262_144
MAX_DEPTH = 32
MAX_REFS = 64
SEARCH_S = 0.2
"""Spent at most on finding which part of a schema it is that the engine refuses."""

LIMITS = LLParserLimits(
    max_grammar_size=100_000,
    max_lexer_states=50_000,
    initial_lexer_fuel=200_000,
    verbose_errors=False,
)
"""As in the worker (`engine.constraint.compile`): what passes here passes there."""

JSON_FORM = {
    # One blank may stand where people write one and nowhere else: a model that may say any
    # whitespace can say nothing but whitespace until its tokens are used up.
    "whitespace_flexible": False,
    "item_separator": ",[ ]?",
    "key_separator": ":[ ]?",
    # No \uXXXX: a free name could be a second spelling of a property, with another type.
    "json_allowed_escapes": 'nrbtf\\"',
    "lenient": False,
    "coerce_one_of": False,
}

RULES = (
    ("Unsatisfiable", "", "no value can satisfy this schema"),
    ("Regex is empty", "", "no value can satisfy this schema"),
    ("oneOf", "oneOf", "its options may hold together; make them exclude each other or use anyOf"),
    ("patternPropert", "patternProperties", "two patterns may match the same name"),
    ("Properties", "minProperties or maxProperties", "cannot be enforced beside these properties"),
    ("circular", "$ref", "cannot refer to itself with other keywords beside it"),
    ("regex", "pattern", "cannot be enforced: wrong, too large, or with look-around or \\b"),
    ("lookaround", "pattern", "cannot be enforced: wrong, too large, or with look-around or \\b"),
)
"""What the engine says, the keyword to blame and what the client is told."""


class _Refused(Exception):
    """Says what is wrong with the whole source."""


@lru_cache(maxsize=32)
def compiled(output: OutputFormat) -> str:
    """The grammar, in the engine's own form. Raises BadField naming `output.param` and, of a
    schema, the keyword and its place. Costs milliseconds, at worst some 0.7 s, in which the
    library lets other threads run."""
    try:
        match output.kind:
            case OutputKind.JSON_OBJECT:
                return _of_schema({"type": "object"})
            case OutputKind.JSON_SCHEMA:
                return _of_schema(_parsed(output.source))
            case OutputKind.REGEX:
                return _of_regex(output.source)
            case OutputKind.GBNF:
                return _of_gbnf(output.source)
            case OutputKind.LARK:
                return _of_lark(output.source)
    except (SchemaRefused, _Refused) as error:
        raise BadField(output.param, str(error)) from error


# JSON Schema


def _parsed(source: str) -> Schema:
    _check_size(source, MAX_SCHEMA_BYTES)
    try:
        schema: Schema = json.loads(source, parse_constant=_no_constant)
    except RecursionError:
        raise _Refused(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise _Refused(f"not valid JSON: {error}") from error
    depth, references = _measure(schema)
    if depth > MAX_DEPTH:
        raise _Refused(f"nested deeper than {MAX_DEPTH} levels")
    if references > MAX_REFS:
        raise SchemaRefused("#", "$ref", f"{references} of them; at most {MAX_REFS}")
    return schema


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_size(source: str, limit: int) -> None:
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise _Refused(f"{size} bytes long; at most {limit}")


def _measure(value: object) -> tuple[int, int]:
    """Levels of arrays and objects, and how often `$ref` is used."""
    depth = references = 0
    level = [value]
    while level:
        objects = [node for node in level if isinstance(node, dict)]
        references += sum(isinstance(node.get("$ref"), str) for node in objects)
        below: list[Any] = [item for node in objects for item in node.values()]
        below += [item for node in level if isinstance(node, list) for item in node]
        depth += any(isinstance(node, dict | list) for node in level)
        level = below
    return depth, references


def enforceable(source: Schema) -> dict[str, Any]:
    """The same schema in words that the engine keeps to the letter. Raises SchemaRefused; the
    depth of `source` must be bounded."""
    lowering = Lowering(source)
    check_progress(lowering.parts, lowering.paths)
    root, parts = without_endless(lowering.root, lowering.parts)
    said = _refusal(_json_grammar(root, parts))
    if said is None:
        return _whole(root, parts)
    log.info("a schema is refused by the constraint engine: %s", said)
    raise _Search(parts, lowering.paths, said).refusal(root)


def _of_schema(source: Schema) -> str:
    return _grammar_of(enforceable(source))


def _whole(root: Schema, parts: dict[str, Schema]) -> dict[str, Any]:
    keywords = {"allOf": [root]} if isinstance(root, bool) else root
    return {**keywords, "$defs": parts}


def _json_grammar(root: Schema, parts: dict[str, Schema]) -> str:
    return _grammar_of(_whole(root, parts))


def _grammar_of(schema: dict[str, Any]) -> str:
    source = json.dumps({**schema, "x-guidance": JSON_FORM})
    return str(LLMatcher.grammar_from_lark(f"{UNFORCED}\nstart: %json {source}\n"))


class _Search:
    """For the smallest part of a schema that the engine refuses."""

    def __init__(self, parts: dict[str, Schema], paths: dict[str, str], said: str) -> None:
        self._parts = parts
        self._paths = paths
        self._said = said
        self._until_s = time.monotonic() + SEARCH_S
        self._seen: set[str] = set()

    def refusal(self, root: Schema) -> SchemaRefused:
        path, node = "#", root
        while found := self._refused_below(node, path):
            path, node = found
        for sign, keyword, rule in RULES:
            if sign in self._said:
                return SchemaRefused(path, keyword, rule)
        return SchemaRefused(path, "", "too complex for constrained output")

    def _refused_below(self, node: Schema, path: str) -> tuple[str, Schema] | None:
        for below, part in self._children(node, path):
            if time.monotonic() > self._until_s:
                return None
            said = _refusal(_json_grammar(part, self._parts))
            if said is not None:
                self._said = said
                return below, part
        return None

    def _children(self, node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
        if isinstance(node, bool):
            return
        for keyword, value in node.items():
            if keyword == "$ref" and (number := target(node)) not in self._seen:
                self._seen.add(number)
                yield self._paths[number], self._parts[number]
            elif keyword in ("items", "additionalProperties"):
                yield f"{path}/{keyword}", value
            elif keyword in ("properties", "patternProperties"):
                for name, part in value.items():
                    yield f"{path}/{keyword}/{escaped(name)}", part
            elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
                for place, part in enumerate(value):
                    yield f"{path}/{keyword}/{place}", part


# Expressions and grammars


def _of_regex(source: str) -> str:
    _check_size(source, MAX_GRAMMAR_BYTES)
    grammar = LLMatcher.grammar_from_regex(source)
    if (said := _refusal(grammar)) is not None:
        log.info("a regular expression is refused by the constraint engine: %s", said)
        raise _Refused("not a regular expression that can be enforced: wrong, or with look-around")
    return grammar


def _of_gbnf(source: str) -> str:
    _check_size(source, MAX_GRAMMAR_BYTES)
    try:
        lark = gbnf_to_lark(source)
    except GbnfError as error:
        raise _Refused(f"not a GBNF grammar: {error}") from error
    return _of_lark(lark)


def _of_lark(source: str) -> str:
    _check_size(source, MAX_GRAMMAR_BYTES)
    grammar = LLMatcher.grammar_from_lark(source)
    is_wrong, said = LLMatcher.validate_grammar_with_warnings(grammar, None, limits=LIMITS)
    # A warning: it names tokens of the model, which only the worker can check.
    refusal = "; ".join(said) if is_wrong else (None if said else _refusal(grammar))
    if refusal is not None:
        log.info("a grammar is refused by the constraint engine: %s", refusal)
        raise _Refused("not a grammar that can be enforced: wrong, without an end, or too complex")
    return grammar


def _refusal(grammar: str) -> str | None:
    """Tries it on a vocabulary of bytes: what the engine has against it, None: nothing."""
    matcher = LLMatcher(_bytes(), grammar, log_level=0, limits=LIMITS)
    if matcher.is_error():
        return matcher.get_error()
    if not matcher.is_accepting() and not any(matcher.compute_bitmask()):
        return "Unsatisfiable: nothing can begin it"
    return matcher.get_error() or None


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer(byte_tokenizer().to_str(), n_vocab=VOCAB_SIZE, eos_token=EOS)
