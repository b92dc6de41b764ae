"""GBNF, the grammars of llama.cpp, as Lark for the constraint engine.

A GBNF grammar has no lexer, while the engine cuts text into the longest lexemes: `[ \\n]* "\\n"`
would never end. So each character is a lexeme of its own here; what a grammar allows stays what it
says. What this reader does not know (tokens by name or id, newer additions) is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mlxcel.generation.rule_graph import entangled, levels

MAX_NESTING = 64
MAX_COUNTS = 8
"""Of one item: `"a"?+` has two."""
MAX_LEVELS = 1000
"""Rules and groups within each other. The engine's stack takes some 2,500; beyond that the process
is gone."""
MAX_ENTANGLED = 64
"""Uses of a rule on ways back to it: what a character costs grows with their third power."""
MAX_REPEAT = 100_000
LAST_CHARACTER = 0x10FFFF
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "[": "[", "]": "]"}
HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
ANY = "/(?s:.)/"
EMPTY = '""'
UNFORCED = '%llguidance {"no_forcing": true}'
"""Else the library cuts text that can go on in one way only into tokens. It makes the words of
special tokens those tokens, and then refuses them (llguidance 1.9.1): the answer fails."""

_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_COUNTS = re.compile(r"\{[ \t\r\n]*([0-9]+)[ \t\r\n]*(?:(,)[ \t\r\n]*([0-9]*)[ \t\r\n]*)?\}")


class GbnfError(Exception):
    """What is wrong, and where."""


@dataclass(frozen=True, slots=True)
class _Use:
    """Of a rule, at a place of the text."""

    name: str
    place: int


@dataclass(frozen=True, slots=True)
class _Rule:
    body: str
    uses: tuple[str, ...]
    levels: int


def gbnf_to_lark(text: str) -> str:
    """Raises GbnfError."""
    return _Reader(text).grammar()


class _Reader:
    """One pass over the text; what is read is Lark already, with rules by number."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._deepest = 0
        """Of the rule that is being read."""
        self._numbers: dict[str, int] = {}
        self._uses: list[_Use] = []

    def grammar(self) -> str:
        rules: dict[str, _Rule] = {}
        self._skip(_LINES)
        while self._at < len(self._text):
            name, rule = self._rule()
            rules[name] = rule  # of two with one name the last counts, as in llama.cpp
        if "root" not in rules:
            raise GbnfError("there is no rule named root")
        for use in self._uses:
            if use.name not in rules:
                raise self._error(f"there is no rule named {use.name}", use.place)
        _check_shape(rules)
        lines = [f"{self._rule_name(name)}: {rule.body}" for name, rule in rules.items()]
        return "\n".join([UNFORCED, "start: " + self._rule_name("root"), *lines, ""])

    def _rule(self) -> tuple[str, "_Rule"]:
        used, self._deepest = len(self._uses), 0
        name = self._name()
        self._skip(_SPACE)
        if not self._text.startswith("::=", self._at):
            raise self._error("expected ::=")
        self._at += 3
        self._skip(_LINES)
        body = self._alternatives(is_nested=False)
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            raise self._error("expected a new line before the next rule")
        self._skip(_LINES)
        names = tuple(use.name for use in self._uses[used:])
        return name, _Rule(body, names, 1 + self._deepest)

    def _alternatives(self, *, is_nested: bool) -> str:
        options = [self._sequence(is_nested=is_nested)]
        while self._peek() == "|":
            self._at += 1
            self._skip(_LINES)
            options.append(self._sequence(is_nested=is_nested))
        return " | ".join(options)

    def _sequence(self, *, is_nested: bool) -> str:
        items: list[str] = []
        while (item := self._item()) is not None:
            self._skip(_LINES if is_nested else _SPACE)
            counts = 0
            while (counted := self._counted(item)) is not None:
                item, counts = counted, counts + 1
                if counts > MAX_COUNTS:
                    raise self._error(f"counted more than {MAX_COUNTS} times over")
                self._deepest = max(self._deepest, self._depth + counts)
                self._skip(_LINES if is_nested else _SPACE)
            items.append(item)
        return " ".join(items) or EMPTY

    def _item(self) -> str | None:
        """What may be counted, in brackets where it needs them; None: the sequence is over."""
        sign = self._peek()
        if sign == '"':
            return self._literal()
        if sign == "[":
            return self._class()
        if sign == "(":
            return self._group()
        if sign == ".":
            self._at += 1
            return ANY
        if _NAME.match(self._text, self._at):
            place = self._at
            name = self._name()
            self._uses.append(_Use(name, place))
            return self._rule_name(name)
        if sign and sign in "<!":
            raise self._error("tokens by name or id are not supported here; write their text")
        return None

    def _group(self) -> str:
        if self._depth == MAX_NESTING:
            raise self._error(f"groups nested deeper than {MAX_NESTING}")
        self._depth += 1
        self._deepest = max(self._deepest, self._depth)
        self._at += 1
        self._skip(_LINES)
        body = self._alternatives(is_nested=True)
        if self._peek() != ")":
            raise self._error("expected )")
        self._at += 1
        self._depth -= 1
        return f"({body})"

    def _counted(self, item: str) -> str | None:
        sign = self._peek()
        if sign and sign in "*+?":
            self._at += 1
            return f"({item}{sign})"
        if sign != "{":
            return None
        found = _COUNTS.match(self._text, self._at)
        if found is None:
            raise self._error("expected {m}, {m,} or {m,n}")
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > MAX_REPEAT:
            raise self._error(f"repeated more than {MAX_REPEAT} times")
        if most is not None and most < least:
            raise self._error(f"repeated at least {least} and at most {most} times")
        self._at = found.end()
        if most == 0:
            return EMPTY
        return f"({item}{{{least},{'' if most is None else most}}})"

    def _literal(self) -> str:
        characters = list(self._characters('"'))
        if not characters:
            return EMPTY
        body = " ".join(_one_of([(c, c)]) for c, _ in characters)
        return body if len(characters) == 1 else f"({body})"

    def _class(self) -> str:
        is_other = self._text.startswith("^", self._at + 1)
        self._at += is_other
        ranges: list[tuple[str, str]] = []
        characters = list(self._characters("]"))
        at = 0
        while at < len(characters):
            first = last = characters[at][0]
            # A dash at the end is one.
            if characters[at + 1 : at + 2] == [("-", False)] and at + 2 < len(characters):
                last = characters[at + 2][0]
                at += 2
            if last < first:
                raise self._error(f"the range {first!r} to {last!r} is empty")
            ranges.append((first, last))
            at += 1
        if not ranges:
            if is_other:
                return ANY
            raise self._error("a class without a character")
        return _one_of(ranges, is_other=is_other)

    def _characters(self, end: str) -> Iterator[tuple[str, bool]]:
        """Up to the sign, which is read over; with each whether it was escaped."""
        opened = self._at
        self._at += 1
        while True:
            sign = self._peek()
            if not sign:
                raise self._error(f"never closed by {end}", opened)
            self._at += 1
            if sign == end:
                return
            yield (self._escaped(), True) if sign == "\\" else (sign, False)

    def _escaped(self) -> str:
        sign = self._peek()
        self._at += 1
        if sign in ESCAPES:
            return ESCAPES[sign]
        if sign not in HEX_ESCAPES:
            raise self._error(f"unknown escape \\{sign}", self._at - 2)
        digits = self._text[self._at : self._at + HEX_ESCAPES[sign]]
        if len(digits) < HEX_ESCAPES[sign] or not re.fullmatch("[0-9A-Fa-f]+", digits):
            raise self._error(f"\\{sign} wants {HEX_ESCAPES[sign]} hexadecimal digits")
        self._at += len(digits)
        number = int(digits, 16)
        if number > LAST_CHARACTER or 0xD800 <= number < 0xE000:
            raise self._error(f"\\{sign}{digits} is no character")
        return chr(number)

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._error("expected the name of a rule")
        self._at = found.end()
        return found[0]

    def _rule_name(self, name: str) -> str:
        """Lark has its own ideas of names."""
        return f"r{self._numbers.setdefault(name, len(self._numbers))}"

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, blank: re.Pattern[str]) -> None:
        found = blank.match(self._text, self._at)
        assert found is not None, "it matches nothing at least"
        self._at = found.end()

    def _error(self, what: str, place: int | None = None) -> GbnfError:
        place = self._at if place is None else place
        line = self._text.count("\n", 0, place) + 1
        near = self._text[place : place + 20]
        return GbnfError(f"{what} at line {line}, before {near!r}")


def _check_shape(rules: Mapping[str, _Rule]) -> None:
    uses = {name: rule.uses for name, rule in rules.items()}
    found = levels("root", uses, {name: rule.levels for name, rule in rules.items()})
    if found > MAX_LEVELS:
        raise GbnfError(f"rules nested {found} levels deep; at most {MAX_LEVELS}")
    name, times = entangled("root", uses)
    if times > MAX_ENTANGLED:
        raise GbnfError(
            f"the rule {name} is used {times} times by what it consists of; at most {MAX_ENTANGLED}"
        )


def _one_of(ranges: list[tuple[str, str]], *, is_other: bool = False) -> str:
    """A lexeme of one character."""
    body = "".join(_code(a) if a == b else f"{_code(a)}-{_code(b)}" for a, b in ranges)
    return f"/[{'^' if is_other else ''}{body}]/"


def _code(character: str) -> str:
    return f"\\x{{{ord(character):X}}}"
