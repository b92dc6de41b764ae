"""What stands between the markers of a format, read as calls: mlx-lm's parsers, and what has to
be done around them so that nothing is lost, merged or mistyped without a word.

Each reader takes the text between two markers and the declared tools, and raises ValueError for
broken markup.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlxcel.core.request import Tool
from mlxcel.text.tools.calls import Found, as_declared, found_calls, texts_only, type_by_schema
from mlxcel.text.tools.library import library_parse

Reader = Callable[[str, Sequence[Tool]], list[Found]]

_BRACE = re.compile(r"[{}]")
_GEMMA_TEXT = re.compile(r'<\|"\|>.*?<\|"\|>', re.DOTALL)
_QWEN_FUNCTION = re.compile(r"<function=.*?</function>", re.DOTALL)
_ATEM_VALUE = re.compile(r"(<atem:parameter\b[^>]*>)(.*?)(</atem:parameter>)", re.DOTALL)
MISTRAL_HEAD = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?\[ARGS\]\s*")


def plain(name: str) -> Reader:
    """Of a format whose values are JSON or typed by its own syntax."""

    def read(body: str, tools: Sequence[Tool]) -> list[Found]:
        return found_calls(library_parse(name, body.strip(), as_declared(tools)), tools)

    return read


def textual(name: str, pairs: Sequence[tuple[str, str]] = ()) -> Reader:
    """Of a format whose values are text. As many of the first as of the second of each pair
    stand in a whole body: the parsers leave out what is not closed."""

    def read(body: str, tools: Sequence[Tool]) -> list[Found]:
        check_pairs(body, pairs)
        raw = library_parse(name, body.strip(), texts_only(tools))
        return type_by_schema(found_calls(raw, tools), tools)

    return read


def check_pairs(body: str, pairs: Sequence[tuple[str, str]]) -> None:
    for opening, closing in pairs:
        if body.count(opening) != body.count(closing):
            raise ValueError(f"a {opening} is not closed by {closing}")


GLM47_PAIRS = (("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>"))
_glm47_text = textual("glm47", GLM47_PAIRS)


def glm47(body: str, tools: Sequence[Tool]) -> list[Found]:
    if "<arg_key>" in body:
        return _glm47_text(body, tools)
    calls = plain("glm47")(body, tools)
    for _, arguments in calls:
        # The parser's way to say that it understood nothing.
        if set(arguments) == {"raw"} and body.strip().endswith(str(arguments["raw"])):
            raise ValueError("neither arguments nor JSON")
    return calls


LONGCAT_PAIRS = (
    ("<longcat_arg_key>", "</longcat_arg_key>"),
    ("<longcat_arg_value>", "</longcat_arg_value>"),
)
_longcat_text = textual("longcat", LONGCAT_PAIRS)


def longcat(body: str, tools: Sequence[Tool]) -> list[Found]:
    if "<longcat_arg_key>" in body or body.lstrip().startswith("{"):
        return _longcat_text(body, tools)
    # Its parser knows no call without arguments.
    return found_calls({"name": body.strip(), "arguments": {}}, tools)


QWEN_PAIRS = (("<function=", "</function>"), ("<parameter=", "</parameter>"))
_qwen3_one = textual("qwen3_coder")


def qwen3_coder(body: str, tools: Sequence[Tool]) -> list[Found]:
    check_pairs(body, QWEN_PAIRS)
    # Its parser takes all of them for one.
    functions = _QWEN_FUNCTION.findall(body)
    return [call for one in functions or [body] for call in _qwen3_one(one, tools)]


MUSE_PAIRS = (("<atem:invoke", "</atem:invoke>"), ("<atem:parameter", "</atem:parameter>"))
_muse_text = textual("muse_spark", MUSE_PAIRS)


def muse_spark(body: str, tools: Sequence[Tool]) -> list[Found]:
    # Its parser takes every value for JSON, which makes 1.1 of the text 1.10.
    quoted = _ATEM_VALUE.sub(lambda m: m[1] + json.dumps(m[2]) + m[3], body)
    return _muse_text(quoted, tools)


K3_PAIRS = (("<|open|>call", "<|close|>call"), ("<|open|>argument", "<|close|>argument"))


def kimi_k3(body: str, tools: Sequence[Tool]) -> list[Found]:
    check_pairs(body, K3_PAIRS)
    calls = found_calls(library_parse("kimi_k3", body, as_declared(tools)), tools)
    if len(calls) != body.count("<|open|>call"):
        # Its parser skips the broken ones.
        raise ValueError("one of the calls is broken")
    return calls


def kimi_k2(body: str, tools: Sequence[Tool]) -> list[Found]:
    # Its parser skips calls that are not closed.
    check_pairs(body, [("<|tool_call_begin|>", "<|tool_call_end|>")])
    return plain("kimi_k2")(body, tools)


_gemma4_one = plain("gemma4")


def gemma4(body: str, tools: Sequence[Tool]) -> list[Found]:
    # Braces that are not closed keep its parser busy for minutes.
    _check_braces(_GEMMA_TEXT.sub("", body))
    return _gemma4_one(body, tools)


def function_gemma(body: str, tools: Sequence[Tool]) -> list[Found]:
    if body.count("{") > 1 or body.count("}") > 1:
        # Its parser ends a call at the first brace; Gemma 4's counts them, and differs in the
        # quotes alone.
        return gemma4(body.replace("<escape>", '<|"|>'), tools)
    return plain("function_gemma")(body, tools)


def _check_braces(text: str) -> None:
    depth = 0
    for brace in _BRACE.findall(text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            break
    if depth != 0 or '<|"|>' in text:
        raise ValueError("a brace or a quote is not closed")


def mistral(body: str, tools: Sequence[Tool]) -> list[Found]:
    """There is no end marker: what follows the list or the last call is left out."""
    body = body.strip()
    if not body.startswith("["):
        return found_calls(list(_headed(body)), tools)
    _, end = json.JSONDecoder().raw_decode(body)
    return found_calls(library_parse("mistral", body[:end], as_declared(tools)), tools)


def _headed(body: str) -> Iterator[dict[str, Any]]:
    """`name[ARGS]{..}`, any number of them. mlx-lm's parser cuts names at dots and takes the id
    of a call for its name."""
    place = 0
    while head := MISTRAL_HEAD.match(body, place):
        arguments, place = json.JSONDecoder().raw_decode(body, head.end())
        yield {"name": head[1], "arguments": arguments}


def llama3(body: str, tools: Sequence[Tool]) -> list[Found]:
    """`{"name": .., "parameters": {..}}`, several separated by `;`, commas or white space. What
    follows the last is left out."""
    return found_calls(_llama3_entries(body)[0], tools)


def llama3_bare(text: str, tools: Sequence[Tool]) -> list[Found]:
    """The same without a marker: the whole text is calls."""
    entries, end = _llama3_entries(text)
    if end < len(text):
        raise ValueError("text around the calls")
    return found_calls(entries, tools)


def _llama3_entries(text: str) -> tuple[list[Any], int]:
    """The calls, and where whatever else there is begins."""
    entries: list[Any] = []
    decoder, place = json.JSONDecoder(), _after_separator(text, 0)
    while text.startswith("{", place):
        entry, place = decoder.raw_decode(text, place)
        if "parameters" not in entry and "arguments" not in entry:
            raise ValueError("an object without parameters is no call")
        entries.append({"name": entry.get("function"), **entry})
        place = _after_separator(text, place)
    return entries, place


def _after_separator(text: str, place: int) -> int:
    while place < len(text) and (text[place].isspace() or text[place] in ";,"):
        place += 1
    return place
